use super::*;

#[test]
fn modes_are_read_as_fdopen_reads_them() {
    let table: [(&CStr, Option<&CStr>); 12] = [
        (c"r", Some(c"r")),
        (c"rb", Some(c"r")),
        (c"r+", Some(c"r+")),
        (c"rb+", Some(c"r+")),
        (c"r+b", Some(c"r+")),
        (c"re+", Some(c"r+")),
        (c"w", Some(c"w")),
        (c"w+", Some(c"w+")),
        (c"a+", Some(c"a+")),
        (c"r,ccs=a+", Some(c"r")),
        (c"", None),
        (c"+r", None),
    ];
    for (mode, expected) in table {
        assert_eq!(plain_mode(mode).ok(), expected, "{mode:?}");
    }
}
