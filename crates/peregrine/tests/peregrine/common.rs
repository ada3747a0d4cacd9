//! Models of random numbers, so small that thousands of sentences take no time.

// Each test program uses some of them.
use peregrine::model::{
    Activation, Architecture, Autoregression, FeedForward, Shortlist, Transformer, TransformerSize,
    made_up_model, marian_transformer, preset,
};
use peregrine::{Compute, Model, Translator};

/// Words of both vocabularies, the end symbol and the unknown word included.
const WORDS: usize = 60;

/// Layers that look at the words so far through a simple recurrent unit.
pub(crate) const SSRU: Autoregression =
    Autoregression::Ssru { layer_norm: false, projection: false };

/// Layers that look at the average of the words so far.
pub(crate) const AAN: Autoregression = Autoregression::Average {
    feed_forward: FeedForward { width: 24, depth: 2, activation: Activation::Relu },
    gate: true,
};

/// A translator that speaks nonsense, always the same. Vocabularies are the words `w2`, `w3`, ...
pub(crate) fn nonsense(autoregression: Autoregression) -> Translator {
    prepared(model(transformer(autoregression)), &Compute::default())
}

/// The same with a shortlist, computed as asked for.
pub(crate) fn listed(autoregression: Autoregression, compute: &Compute) -> Translator {
    prepared(with_list(model(transformer(autoregression))), compute)
}

/// A recurrent network with a shortlist.
pub(crate) fn recurrent(compute: &Compute) -> Translator {
    let architecture = match preset("gru", Some(WORDS)) {
        Some(Architecture::Recurrent(mut gru)) => {
            (gru.width, gru.attention_width) = (32, 16);
            (gru.source_embedding, gru.target_embedding) = (16, 16);
            Architecture::Recurrent(gru)
        }
        other => panic!("{other:?}"),
    };
    prepared(with_list(model(architecture)), compute)
}

fn transformer(autoregression: Autoregression) -> Architecture {
    let size = TransformerSize {
        width: 16,
        inner: 24,
        heads: 2,
        encoder_layers: 1,
        decoder_layers: 1,
        words: WORDS,
    };
    Architecture::Transformer(Transformer { autoregression, ..marian_transformer(size) })
}

fn model(architecture: Architecture) -> Model {
    let mut model = made_up_model(architecture, 7).expect("a complete model");
    model.search.max_length_factor = Some(2.0);
    model
}

fn with_list(mut model: Model) -> Model {
    let lists = (0..WORDS as u32).map(|w| vec![w, w * 7 % 60, w * 13 % 60]).collect();
    model.shortlist = Some(Shortlist::new(lists, 20, WORDS, 0));
    model
}

fn prepared(model: Model, compute: &Compute) -> Translator {
    Translator::prepare(model, compute).expect("a complete model")
}
