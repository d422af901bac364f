use super::*;

#[test]
fn a_process_with_threads_is_refused() {
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    assert!(Standby::new().renew().is_err());
    drop(stop);
    assert!(other.join().is_ok());
}
