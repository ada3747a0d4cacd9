//! A process may fork after it has opened a model, before the first request. Afterwards a service is of
//! no use to the child, which is told so and can make one of its own.
#![cfg(unix)]

#[path = "peregrine/common.rs"]
#[expect(dead_code, reason = "for many tests, of which this is one")]
mod common;

use common::nonsense;
use peregrine::model::Autoregression;
use peregrine::{Error, Service, ServiceOptions};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

/// Whether `child` is true in a forked process.
fn in_a_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child has this thread only. It uses nothing that another thread could have locked:
    // no test of this program runs beside this one, and the service's threads hold no lock of the
    // allocator while they sleep. It ends without returning.
    unsafe {
        match fork() {
            0 => {
                let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                _exit(i32::from(!fine.unwrap_or(false)))
            }
            process => {
                let mut status = -1;
                assert_eq!(waitpid(process, &mut status, 0), process);
                status == 0
            }
        }
    }
}

#[test]
fn a_fork_has_the_model_and_not_the_threads() {
    let translator = nonsense(Autoregression::SelfAttention);
    let expected = translator.translate("w1 w2 w3").expect("a translation");
    let options = ServiceOptions::new(translator.workers());
    let service = Service::new(&translator, &options);
    let works =
        |service: &Service| service.translate("w1 w2 w3").is_ok_and(|text| text == expected);
    // Before the first request nothing is lost.
    assert!(in_a_child(|| works(&service)));
    assert!(works(&service));
    // Let the worker fall asleep.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(in_a_child(|| {
        let refused = matches!(service.translate("w1 w2 w3"), Err(Error::Forked));
        // Ending it does not wait for threads that are not there.
        drop(service);
        refused && works(&Service::new(&translator, &options))
    }));
}
