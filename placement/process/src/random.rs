/// 64 bits that can't be guessed, and aren't 0.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    while !matches!(
        rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, flags)),
        Ok(8)
    ) || bytes == [0; 8]
    {}
    u64::from_ne_bytes(bytes)
}
