//! A GPU that fails, through the whole library: requests of the failed batch get `Error::Device`, later ones are
//! answered, and a context that has ended stays so until the model is opened again. On the fake driver, whose kernels do
//! nothing: every translation is empty.

use crate::common::{AAN, SSRU, listed, recurrent};
use peregrine::{Compute, Error, GpuPrecision, Request, Service, ServiceOptions, Translator};
use peregrine_cuda::fake::Fake;

const MEMORY: usize = 1 << 30;

fn compute() -> Compute {
    Compute::cuda(0, GpuPrecision::Float16)
}

fn assert_answered(answer: Result<String, Error>) {
    assert_eq!(answer.expect("a translation"), "");
}

fn assert_failed(answer: Result<String, Error>) {
    match answer {
        Err(Error::Device(reason)) => assert!(reason.contains("CUDA error 700"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_launch_concerns_one_batch() {
    let open: [&dyn Fn() -> Translator; 3] =
        [&|| listed(SSRU, &compute()), &|| listed(AAN, &compute()), &|| recurrent(&compute())];
    for open in open {
        let fake = Fake::new(MEMORY);
        let translator = open();
        assert_answered(translator.translate("w5 w6 w7"));
        fake.fail_kernels(true);
        assert_failed(translator.translate("w5 w6 w7"));
        fake.fail_kernels(false);
        assert_answered(translator.translate("w5 w6 w7"));
    }
}

#[test]
fn a_service_outlives_a_failed_launch() {
    let fake = Fake::new(MEMORY);
    let translator = listed(SSRU, &compute());
    let workers = translator.workers().with_threads(2);
    let service = Service::new(&translator, &ServiceOptions::new(workers));
    let submit = || {
        let pending = (0..20).map(|_| service.submit(&Request::new("w5 w6 w7")).expect("room"));
        let pending: Vec<_> = pending.collect();
        let answer = |pending: peregrine::Pending| pending.wait().map(|t| t.text().to_owned());
        pending.into_iter().map(answer).collect::<Vec<_>>()
    };
    submit().into_iter().for_each(assert_answered);
    fake.fail_kernels(true);
    submit().into_iter().for_each(assert_failed);
    fake.fail_kernels(false);
    submit().into_iter().for_each(assert_answered);
}

#[test]
fn a_context_that_has_ended_stays_so_until_the_model_is_opened_again() {
    let fake = Fake::new(MEMORY);
    let translator = listed(SSRU, &compute());
    let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
    assert_answered(service.translate("w5 w6 w7"));
    fake.end_context();
    for _ in 0..3 {
        assert_failed(service.translate("w5 w6 w7"));
        assert_failed(translator.translate("w5 w6 w7"));
    }
    drop((service, translator));
    assert_answered(listed(SSRU, &compute()).translate("w5 w6 w7"));
}
