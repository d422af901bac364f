//! How descriptors and times look in text.
use crate::{BAG, Bag};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Descriptors, alone or in a container.
pub trait Inherit: Sized {
    /// Numbers in the place of descriptors.
    type Shape: Serialize + DeserializeOwned;
    /// Lends them. `None` outside of [`crate::lend`].
    fn lend(&self) -> Option<Self::Shape>;
    /// Takes them. `None` if they weren't lent, or are taken.
    fn take(shape: Self::Shape) -> Option<Self>;
}

fn note(number: RawFd) -> Option<RawFd> {
    BAG.with_borrow_mut(|bag| match bag {
        Bag::Lending(all) => {
            all.insert(number);
            Some(number)
        }
        Bag::Closed | Bag::Taking(_) => None,
    })
}

/// Lends a descriptor that something else owns, as [`Inherit::lend`] does.
pub fn lend_borrowed(descriptor: BorrowedFd<'_>) -> Option<RawFd> {
    note(descriptor.as_raw_fd())
}

impl Inherit for OwnedFd {
    type Shape = RawFd;

    fn lend(&self) -> Option<RawFd> {
        note(self.as_raw_fd())
    }

    fn take(number: RawFd) -> Option<OwnedFd> {
        BAG.with_borrow_mut(|bag| match bag {
            Bag::Taking(all) => all.remove(&number),
            Bag::Closed | Bag::Lending(_) => None,
        })
    }
}

/// May be in several places: each gets one of its own.
impl Inherit for Arc<OwnedFd> {
    type Shape = RawFd;

    fn lend(&self) -> Option<RawFd> {
        note(self.as_raw_fd())
    }

    fn take(number: RawFd) -> Option<Arc<OwnedFd>> {
        BAG.with_borrow_mut(|bag| match bag {
            Bag::Taking(all) => all.get(&number)?.try_clone().ok().map(Arc::new),
            Bag::Closed | Bag::Lending(_) => None,
        })
    }
}

impl<T: Inherit> Inherit for Option<T> {
    type Shape = Option<T::Shape>;

    fn lend(&self) -> Option<Self::Shape> {
        match self {
            Some(one) => one.lend().map(Some),
            None => Some(None),
        }
    }

    fn take(shape: Self::Shape) -> Option<Self> {
        match shape {
            Some(shape) => T::take(shape).map(Some),
            None => Some(None),
        }
    }
}

impl<T: Inherit> Inherit for Vec<T> {
    type Shape = Vec<T::Shape>;

    fn lend(&self) -> Option<Self::Shape> {
        self.iter().map(T::lend).collect()
    }

    fn take(shape: Self::Shape) -> Option<Self> {
        shape.into_iter().map(T::take).collect()
    }
}

impl<T: Inherit, const N: usize> Inherit for [T; N] {
    type Shape = Vec<T::Shape>;

    fn lend(&self) -> Option<Self::Shape> {
        self.iter().map(T::lend).collect()
    }

    fn take(shape: Self::Shape) -> Option<Self> {
        Vec::take(shape)?.try_into().ok()
    }
}

impl<T: Inherit, U: Inherit> Inherit for (T, U) {
    type Shape = (T::Shape, U::Shape);

    fn lend(&self) -> Option<Self::Shape> {
        Some((self.0.lend()?, self.1.lend()?))
    }

    fn take((one, other): Self::Shape) -> Option<Self> {
        Some((T::take(one)?, U::take(other)?))
    }
}

impl<K: Ord + Clone + Serialize + DeserializeOwned, T: Inherit> Inherit for BTreeMap<K, T> {
    type Shape = BTreeMap<K, T::Shape>;

    fn lend(&self) -> Option<Self::Shape> {
        let all = self.iter();
        all.map(|(key, one)| Some((key.clone(), one.lend()?)))
            .collect()
    }

    fn take(shape: Self::Shape) -> Option<Self> {
        let all = shape.into_iter();
        all.map(|(key, one)| Some((key, T::take(one)?))).collect()
    }
}

/// For `#[serde(with)]` at descriptors.
pub mod descriptors {
    use super::Inherit;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    /// Lends them.
    ///
    /// # Errors
    /// Outside of [`crate::lend`].
    pub fn serialize<T: Inherit, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        let shape = value.lend();
        let outside = || ser::Error::custom("a descriptor has no text form but for an heir");
        shape.ok_or_else(outside)?.serialize(to)
    }

    /// Takes them.
    ///
    /// # Errors
    /// If they weren't lent.
    pub fn deserialize<'de, T: Inherit, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let taken = T::take(T::Shape::deserialize(from)?);
        taken.ok_or_else(|| {
            de::Error::custom("a descriptor wasn't lent, or isn't what it was said to be")
        })
    }
}

/// A time of the monotonic clock, or none: that clock goes on through `exec`.
pub trait Moments: Sized {
    /// Nanoseconds from now on; less than 0 is in the past.
    type Shape: Serialize + for<'de> Deserialize<'de>;
    /// As text.
    fn lend(&self, now: Instant) -> Self::Shape;
    /// From text.
    fn take(shape: Self::Shape, now: Instant) -> Self;
}

impl Moments for Instant {
    type Shape = i64;

    fn lend(&self, now: Instant) -> i64 {
        let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        match self.checked_duration_since(now) {
            Some(later) => nanos(later),
            None => -nanos(now.saturating_duration_since(*self)),
        }
    }

    fn take(shape: i64, now: Instant) -> Instant {
        let span = Duration::from_nanos(shape.unsigned_abs());
        let other = match shape < 0 {
            true => now.checked_sub(span),
            false => now.checked_add(span),
        };
        other.unwrap_or(now)
    }
}

impl Moments for Option<Instant> {
    type Shape = Option<i64>;

    fn lend(&self, now: Instant) -> Option<i64> {
        self.as_ref().map(|it| it.lend(now))
    }

    fn take(shape: Option<i64>, now: Instant) -> Option<Instant> {
        shape.map(|it| Instant::take(it, now))
    }
}

/// For `#[serde(with)]` at times.
pub mod moments {
    use super::Moments;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Instant;

    /// As nanoseconds from now on.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<T: Moments, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.lend(Instant::now()).serialize(to)
    }

    /// From nanoseconds.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, T: Moments, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        Ok(T::take(T::Shape::deserialize(from)?, Instant::now()))
    }
}
