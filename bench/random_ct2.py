"""CTranslate2 transformers of random weights, for measuring."""
import os


def save(folder, layers, width, inner, heads, vocabulary, pre_norm=False, quantization=None, **config):
    """Writes a model whose embeddings are its output layer too. `layers` are those of encoder and decoder; `config` are fields of its
    config.json."""
    import numpy as np
    from ctranslate2.specs import TransformerSpec

    numbers = np.random.default_rng(1)
    words = len(vocabulary)

    def fill(layer, outputs, inputs):
        layer.weight = numbers.standard_normal((outputs, inputs), np.float32) / np.float32(inputs**0.5)
        layer.bias = np.zeros(outputs, np.float32)

    def norm(layer):
        layer.gamma, layer.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    spec = TransformerSpec.from_config(layers, heads, pre_norm=pre_norm)
    table = numbers.standard_normal((words, width), np.float32) / np.float32(width**0.5)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    spec.decoder.projection.bias = np.zeros(words, np.float32)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        if pre_norm:
            norm(side.layer_norm)
        for layer in side.layer:
            norm(layer.self_attention.layer_norm), norm(layer.ffn.layer_norm)
            fill(layer.self_attention.linear[0], 3 * width, width)
            fill(layer.self_attention.linear[1], width, width)
            fill(layer.ffn.linear_0, inner, width)
            fill(layer.ffn.linear_1, width, inner)
            if side is spec.decoder:
                norm(layer.attention.layer_norm)
                for linear, outputs in zip(layer.attention.linear, (width, 2 * width, width)):
                    fill(linear, outputs, width)
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    for name, value in config.items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization=quantization)
    os.makedirs(folder, exist_ok=True)
    spec.save(folder)
