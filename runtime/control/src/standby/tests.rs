use super::*;

#[test]
fn a_process_with_threads_is_refused() {
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    let mut standby = Standby::new();
    assert!(standby.renew(|_| None).is_err());
    drop(stop);
    assert!(other.join().is_ok());
}
