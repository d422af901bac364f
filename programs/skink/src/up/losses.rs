//! What ends with a process. Connections are in the processes that have `tcp` and `udp`; none of those that
//! programs have a channel to goes on for one of them that died. What `store` has is of use only to
//! them, so that its process begins anew with theirs.
use super::layout::{Layout, Places};
use skink_control::Part;

/// Whether programs lose their connections with the process at this place.
pub fn costs_connections(layout: &Layout, place: usize) -> bool {
    layout.transports().contains(place)
}

/// The others that end with it, and begin anew together with it, with new queues between them.
pub fn end_with(layout: &Layout, place: usize) -> Places {
    if !costs_connections(layout, place) {
        return Places::default();
    }
    let ends = |part: Part| part.serves_programs() || part == Part::Store;
    let mut all = layout.hosting(ends);
    all.remove(place);
    all
}
