//! A GPU that fails: the request is told, the server lives on. On the fake driver, whose kernels do nothing: every
//! translation is empty.

use crate::common::start;
use peregrine_cuda::fake::Fake;
use serde_json::json;

#[test]
fn a_gpu_error_is_told_and_outlived() {
    let fake = Fake::new(1 << 30);
    let server = start(&[("device", "cuda")]);
    let ask = |text: &str| server.post("/v1/translate", &json!({"text": text, "to": "pt"}));
    assert_eq!(ask("Thank you.").status, 200);
    fake.fail_kernels(true);
    let failed = ask("Good morning!");
    assert_eq!((failed.status, failed.json()["error"]["code"].as_str()), (500, Some("internal")));
    let body = json!({"text": ["Good evening."], "target_lang": "PT"});
    assert!(
        server.post("/v2/translate", &body).json()["message"]
            .as_str()
            .unwrap()
            .contains("CUDA error")
    );
    fake.fail_kernels(false);
    assert_eq!(ask("Good night.").status, 200);
    fake.end_context();
    assert_eq!(ask("Good-bye.").status, 500);
    assert_eq!(server.get("/healthz").status, 200);
    assert!(server.metric("peregrine_failed_total") >= 3.0);
}
