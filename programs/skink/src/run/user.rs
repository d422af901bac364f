use crate::failure::Failure;

/// Whom the program is to run as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// The user of that name or number, from `/etc/passwd`.
    pub fn find(name: &str) -> Result<User, Failure> {
        let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        find_in(&text, name).ok_or_else(|| {
            Failure::own(format!(
                "there is no user {name} in /etc/passwd: give --user another name, or a number"
            ))
        })
    }
}

/// The number of the group of that name or number, from `/etc/group`.
pub fn group(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    group_in(&text, name)
}

fn group_in(group: &str, name: &str) -> Option<u32> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let known = fields.next()?;
        let gid = fields.nth(1)?.parse().ok()?;
        (known == name).then_some(gid)
    };
    name.parse().ok().or_else(|| group.lines().find_map(entry))
}

fn find_in(passwd: &str, name: &str) -> Option<User> {
    let number: Option<u32> = name.parse().ok();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let known = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (known == name || Some(uid) == number).then_some(User { uid, gid })
    };
    // A number needs no entry.
    let plain = number.map(|uid| User { uid, gid: uid });
    passwd.lines().find_map(entry).or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        let text = "root:x:0:\nbad line\nweb:x:44:me,you\n";
        for (name, expected) in [("web", Some(44)), ("7", Some(7)), ("", None), ("me", None)] {
            assert_eq!(group_in(text, name), expected, "{name}");
        }
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbad line\nwww:x:33:34::/:/bin/false\n";
        let user = |uid, gid| Some(User { uid, gid });
        for (name, expected) in [
            ("root", user(0, 0)),
            ("www", user(33, 34)),
            ("33", user(33, 34)),
            ("1234", user(1234, 1234)),
            ("nobody-here", None),
            ("", None),
        ] {
            assert_eq!(find_in(passwd, name), expected, "{name}");
        }
    }
}
