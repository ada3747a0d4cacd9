//! A digest that identifies a model by its content.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::Model;

impl Model {
    /// A digest of everything translations depend on: description, weights, vocabularies, search
    /// settings, shortlist. The same model has the same digest wherever its files are. It guards against
    /// mistakes, not against malice.
    pub fn digest(&self) -> u64 {
        let mut digest = FxHasher::default();
        let mut description = self.describe();
        for (member, network) in self.members.iter().enumerate() {
            description["members"][member]["path"] = serde_json::Value::Null;
            for (name, weight) in network.weights.iter() {
                digest.write(name.as_bytes());
                digest.write(&weight.data);
                weight.data.release();
                weight
                    .scales
                    .iter()
                    .flat_map(|s| s.iter())
                    .for_each(|s| digest.write_u32(s.to_bits()));
            }
        }
        description["notes"] = serde_json::Value::Null;
        digest.write(description.to_string().as_bytes());
        for tokenizer in [&self.source, &self.target] {
            let recipe = tokenizer.recipe();
            digest.write(format!("{:?}", recipe.description).as_bytes());
            recipe.parts.iter().for_each(|(_, part)| digest.write(part));
        }
        if let Some(shortlist) = &self.shortlist {
            let parts = shortlist.parts();
            digest.write(format!("{:?}", parts.rules).as_bytes());
            for numbers in [&parts.offsets, &parts.lists, &parts.phrases] {
                digest.write(bytemuck::cast_slice(numbers));
            }
        }
        digest.finish()
    }
}
