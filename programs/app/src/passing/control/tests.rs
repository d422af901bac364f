use super::*;

const RIGHTS: (c_int, c_int) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
const CREDENTIALS: (c_int, c_int) = (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
/// The number of `SCM_RIGHTS` on another level.
const ELSEWHERE: (c_int, c_int) = (libc::IPPROTO_IP, libc::SCM_RIGHTS);

/// A message that says that it is of `length` bytes, followed by `data` and the padding.
fn message((level, kind): (c_int, c_int), length: usize, data: &[c_int]) -> Vec<u8> {
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data.iter().flat_map(|number| number.to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A good message.
fn good(kind: (c_int, c_int), data: &[c_int]) -> Vec<u8> {
    message(kind, HEADER + 4 * data.len(), data)
}

fn found(control: &[u8]) -> Vec<c_int> {
    let places = places(control).into_iter();
    places
        .map(|place| descriptor(control, place).expect("a descriptor"))
        .collect()
}

#[test]
fn descriptors_are_found() {
    type Row<'a> = (&'a str, Vec<Vec<u8>>, &'a [c_int]);
    let table: [Row<'_>; 11] = [
        ("nothing", vec![], &[]),
        ("one", vec![good(RIGHTS, &[5])], &[5]),
        ("three", vec![good(RIGHTS, &[5, 6, 7])], &[5, 6, 7]),
        ("none", vec![good(RIGHTS, &[])], &[]),
        (
            "others around",
            vec![
                good(CREDENTIALS, &[1, 2, 3]),
                good(RIGHTS, &[9]),
                good(ELSEWHERE, &[4]),
                good(RIGHTS, &[8]),
            ],
            &[9, 8],
        ),
        (
            "half a number",
            vec![message(RIGHTS, HEADER + 6, &[5, 6])],
            &[5],
        ),
        ("no length", vec![message(RIGHTS, 0, &[5])], &[]),
        ("too short", vec![message(RIGHTS, HEADER - 1, &[5])], &[]),
        ("too long", vec![message(RIGHTS, HEADER + 9, &[5, 6])], &[]),
        (
            "as long as can be",
            vec![message(RIGHTS, usize::MAX, &[5])],
            &[],
        ),
        (
            "a bad one ends it",
            vec![
                good(RIGHTS, &[1]),
                message(CREDENTIALS, 1, &[]),
                good(RIGHTS, &[2]),
            ],
            &[1],
        ),
    ];
    for (name, messages, expected) in table {
        assert_eq!(found(&messages.concat()), expected, "{name}");
    }
}

#[test]
fn what_is_cut_off_is_not_read() {
    let whole = [good(RIGHTS, &[1, 2]), good(RIGHTS, &[3, 4])].concat();
    for length in 0..=whole.len() {
        let expected: &[c_int] = match length {
            48.. => &[1, 2, 3, 4],
            24.. => &[1, 2],
            _ => &[],
        };
        assert_eq!(found(&whole[..length]), expected, "{length} bytes");
    }
    // The last one's padding may be missing.
    assert_eq!(found(&good(RIGHTS, &[7])[..HEADER + 4]), [7]);
}

#[test]
fn one_is_replaced_alone() {
    let mut control = [good(RIGHTS, &[1, 2]), good(RIGHTS, &[3])].concat();
    let all = places(&control);
    replace(&mut control, all[1], 77);
    assert_eq!(
        control,
        [good(RIGHTS, &[1, 77]), good(RIGHTS, &[3])].concat()
    );
    let length = control.len();
    let before = control.clone();
    replace(&mut control, length - 3, 5);
    assert_eq!(control, before, "outside");
    assert_eq!(descriptor(&control, length - 3), None);
}
