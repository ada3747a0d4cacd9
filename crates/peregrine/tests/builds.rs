//! What a build without the features `cuda` and `builtin` answers where a whole one computes.

use peregrine::model::{made_up_model, preset};
use peregrine::{Compute, Device, Error, Translator};

fn prepare(device: Device) -> Result<Translator, Error> {
    let model = made_up_model(preset("student", Some(50)).expect("a known shape"), 1)?;
    Translator::prepare(model, &Compute { device, ..Compute::default() })
}

#[test]
fn the_built_in_model_is_there_or_said_to_be_missing() {
    let translator = Translator::builtin();
    assert_eq!(translator.is_ok(), cfg!(feature = "builtin"));
    match translator {
        Ok(translator) => {
            assert_eq!(translator.translate("Good morning!").expect("a translation"), "Bom dia!");
        }
        Err(reason) => {
            assert!(matches!(reason, Error::NoBuiltin));
            assert_eq!(reason.to_string(), "this build has no built-in model");
        }
    }
}

#[test]
fn a_gpu_is_looked_for_or_refused() {
    let refused = prepare(Device::Cuda(99)).err().expect("no machine has so many");
    let refused = refused.to_string();
    assert_eq!(
        refused == "this build has no CUDA backend",
        cfg!(not(feature = "cuda")),
        "{refused}"
    );
    let auto = prepare(Device::Auto).expect("a device");
    assert!(cfg!(feature = "cuda") || auto.device().starts_with("CPU"), "{}", auto.device());
}
