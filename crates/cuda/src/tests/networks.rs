//! Whole networks: which kernels a step takes, and what it waits for.

use super::*;

/// A network of that shape.
fn session(fake: &Fake, shape: &str) -> Box<dyn Network> {
    let gpu = Cuda::on(Device::on_fake(fake, GpuPrecision::Float16).expect("a device"));
    let model = made_up_model(preset(shape, Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    prepare(gpu, &member.architecture, &member.weights).expect("all weights").session()
}

/// Whether the hypotheses of a sentence form a party depends on its own search alone: not on sentences admitted later,
/// nor on the batch.
#[test]
fn whether_rows_form_parties_depends_on_the_search() {
    // Where the parameters of attention are.
    const COUNT: usize = 56;
    const PARTIES: usize = 96;
    const ROWS: usize = 104;
    let fake = Fake::new(1 << 30);
    let mut session = session(&fake, "student");
    let sentence = |beam| Sentence { source: &[5, 6, 7], words: None, beam };
    let [beam, greedy] = [true, false].map(|beam| session.admit(&[sentence(beam)])[0]);
    // Attention to the source, which is the last.
    let mut attended = |rows: &[(Slot, Origin)]| -> Vec<Launched> {
        let row = |&(slot, from): &(Slot, Origin)| Row { slot, from, position: 0 };
        fake.ran();
        session.step(&rows.iter().map(row).collect::<Vec<_>>(), false);
        best_words(&mut session, rows.len());
        session.take_top_k(&mut Choices::default());
        let attends = |(_, launched): (usize, Launched)| {
            (launched.kernel.starts_with("attend")).then_some(launched)
        };
        let all: Vec<Launched> = fake.world(|w| w.ran.drain(..).filter_map(attends).collect());
        // Three layers: one kernel for the past of each.
        let source = all.len() / 3 - 1;
        all[all.len() - source..].to_vec()
    };
    let names = |launched: &[Launched]| -> Vec<String> {
        launched.iter().map(|launched| launched.kernel.clone()).collect()
    };
    let start = Origin::Start(None);
    for (slot, expected) in [(beam, "attend_few_32"), (greedy, "attend_head_32")] {
        let alone = attended(&[(slot, start)]);
        assert_eq!(names(&alone), [expected]);
        assert_eq!(alone[0].address(ROWS), 0);
    }
    let on = |row| Origin::Row { row, token: 9 };
    let both = attended(&[(beam, start), (greedy, start)]);
    assert_eq!(names(&both), ["attend_head_32", "attend_few_32"]);
    let both = attended(&[(greedy, on(1)), (beam, on(0)), (beam, on(0)), (beam, on(0))]);
    assert_eq!(names(&both), ["attend_head_32", "attend_few_32"]);
    fake.world(|w| {
        let words = |at: u64| [0, 1, 2, 3].map(|i| w.word(at + 4 * i));
        assert_eq!(words(both[0].address(ROWS))[0], 0, "the greedy row");
        assert_eq!(w.word(both[0].address(COUNT)), 1, "and no other");
        assert_eq!(words(both[1].address(PARTIES)), [1, 3, 0, 0], "the beam's rows");
    });
}

/// Alignments change nothing for other sentences: the same kernels run, in the same order, and one more.
#[test]
fn alignments_take_a_kernel_more_and_change_no_other() {
    for (shape, more) in
        [("student", "attention_weights"), ("gru", "copy_words"), ("rnnfc-s3", "copy_words")]
    {
        let fake = Fake::new(1 << 30);
        let mut session = session(&fake, shape);
        let sentence = Sentence { source: &[5, 6, 7], words: None, beam: false };
        let slots = session.admit(&[sentence, Sentence { beam: true, ..sentence }]);
        let rows = [0, 1].map(|i| Row { slot: slots[i], from: Origin::Start(None), position: 0 });
        // Memory has grown as far as it will.
        session.step(&rows, true);
        best_words(&mut session, 2);
        session.take_top_k(&mut Choices::default());
        let mut step = |alignments: bool| {
            fake.world(|w| w.ran.clear());
            session.step(&rows, alignments);
            best_words(&mut session, 2);
            fake.world(|w| w.ran.iter().map(|(_, launched)| launched.clone()).collect::<Vec<_>>())
        };
        let kernels = |launched: &[Launched]| -> Vec<(String, [u32; 2])> {
            launched.iter().map(|l| (l.kernel.clone(), l.grid)).collect()
        };
        // A query whose answer has not been read yet.
        let plain = step(false);
        let with = step(true);
        let (mut found, expected) = (kernels(&with), kernels(&plain));
        let place = found.iter().position(|(kernel, _)| kernel == more).expect(more);
        found.remove(place);
        assert_eq!(found, expected, "{shape}");
        let answer_of = |launched: &[Launched]| {
            let merge = launched.iter().find(|l| l.kernel == "merge").expect("an answer");
            merge.address(merge.parameters.len() - 40)
        };
        assert_ne!(answer_of(&with), answer_of(&plain), "{shape}: it is not written over");
    }
}

/// Sentences are encoded on the side stream, and only a step that reads them waits for that.
#[test]
fn steps_wait_for_the_encoding_of_those_they_read() {
    for shape in ["student", "gru", "rnnfc-s3"] {
        let fake = Fake::new(1 << 30);
        let mut session = session(&fake, shape);
        assert!(session.encodes_on_side_stream());
        // Room for all that follows.
        let long = session.admit(&[Sentence { source: &[5; 100], words: None, beam: false }])[0];
        session.release(long);
        fake.ran();
        // The stream of the last launch, the number of its launches so far, and what the first of them waited for.
        let sent = || {
            fake.world(|w| {
                let (stream, last) = w.ran.last().expect("a kernel").clone();
                let waited = |(_, launched): &(usize, Launched)| launched.after.clone();
                let first = w.ran.first().map(waited).expect("a kernel");
                assert!(w.ran.drain(..).all(|(other, _)| other == stream), "{shape}");
                (stream, last.after[&stream] + 1, first)
            })
        };
        let sentence = Sentence { source: &[5, 6, 7], words: None, beam: false };
        let step = |session: &mut Box<dyn Network>, slots: &[(Slot, Origin)]| {
            let row = |&(slot, from): &(Slot, Origin)| Row { slot, from, position: 0 };
            session.step(&slots.iter().map(row).collect::<Vec<_>>(), false);
            best_words(session, slots.len());
            session.take_top_k(&mut Choices::default());
            sent()
        };
        let first = session.admit(&[sentence])[0];
        let (side, encoded, _) = sent();
        let (own, stepped, waited) = step(&mut session, &[(first, Origin::Start(None))]);
        assert_ne!(own, side);
        assert_eq!(waited[&side], encoded, "{shape}: the first step reads what was encoded");
        let second = session.admit(&[sentence])[0];
        let (_, both_encoded, waited) = sent();
        assert_eq!(waited[&own], stepped, "{shape}: what is encoded may take rows just left");
        let on = Origin::Row { row: 0, token: 9 };
        let (.., waited) = step(&mut session, &[(first, on)]);
        assert_eq!(waited[&side], encoded, "{shape}: no step reads the second sentence yet");
        let (.., waited) = step(&mut session, &[(first, on), (second, Origin::Start(None))]);
        assert_eq!(waited[&side], both_encoded, "{shape}");
        // A sentence that is never read: its rows are not reused before they are written.
        let third = session.admit(&[sentence])[0];
        let (_, all_encoded, _) = sent();
        session.release(third);
        let (.., waited) = step(&mut session, &[(first, on)]);
        assert_eq!(waited[&side], all_encoded, "{shape}");
    }
}

/// A KV cache that grows is copied, after all that is being written to it.
#[test]
fn caches_that_grow_wait_for_what_is_encoded() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device"));
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    session.admit(&[Sentence { source: &[5; 3], words: None, beam: false }]);
    let encoded =
        fake.world(|w| w.ran.drain(..).next_back().map(|(stream, l)| l.after[&stream] + 1));
    let encoded = encoded.expect("a kernel");
    session.admit(&[Sentence { source: &[5; 100], words: None, beam: false }]);
    fake.world(|w| {
        let (side, _) = w.ran.last().expect("a kernel").clone();
        // Not those of caches that only the side stream uses.
        let copies = w
            .ran
            .iter()
            .filter(|(stream, launched)| *stream != side && launched.kernel == "copy_words");
        let waited: Vec<_> = copies.map(|(_, copy)| copy.after.get(&side)).collect();
        assert!(!waited.is_empty() && waited.iter().all(|waited| *waited == Some(&encoded)));
    });
}

/// In turn, everything is on one stream.
#[test]
fn without_a_side_stream_everything_is_on_one_stream() {
    let fake = Fake::new(1 << 30);
    let gpu =
        Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device")).in_turn(true);
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    assert!(!session.encodes_on_side_stream());
    let slots = session.admit(&[Sentence { source: &[5, 6, 7], words: None, beam: false }]);
    session.step(&[Row { slot: slots[0], from: Origin::Start(None), position: 0 }], false);
    let streams = fake.world(|w| w.ran.iter().map(|(stream, _)| *stream).collect::<Vec<_>>());
    assert!(streams.iter().all(|&stream| stream == streams[0]));
}

/// In fp8 the source is encoded in float16, and steps are not.
#[test]
fn fp8_is_for_steps() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Fp8).expect("a device"));
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    fake.ran();
    let quantised = || {
        let ran = fake.ran();
        let count = |wanted: &str| ran.iter().filter(|kernel| kernel.starts_with(wanted)).count();
        (count("quantise"), count("product"))
    };
    let slots = session.admit(&[Sentence { source: &[5, 6, 7], words: None, beam: false }]);
    // Six layers of four products, and keys and values for three.
    assert_eq!(quantised(), (0, 6 * 4 + 3));
    session.step(&[Row { slot: slots[0], from: Origin::Start(None), position: 0 }], false);
    best_words(&mut session, 1);
    // Three layers of six products, and the output layer.
    assert_eq!(quantised(), (3 * 6 + 1, 3 * 6));
}
