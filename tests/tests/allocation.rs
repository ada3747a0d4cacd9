//! A step of the search asks the system for no memory: longer translations cost more steps, but not
//! one allocation more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use peregrine::measure::Functions;
use peregrine::model::{made_up_model, preset};
use peregrine::{BatchSize, Compute, Options, Precision, Request, Speedups, Translator};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of a translation of exactly `length` tokens, each taken as text of one word.
fn allocations(translator: &Translator, options: &Options, length: usize) -> usize {
    let mut options = options.clone();
    options.search.min_length = length - 1;
    options.search.max_length = Some(length);
    options.search.max_length_factor = None;
    let requests = [Request::new("w5 w9 w33 w7 w2 w11 w60")];
    let before = COUNT.load(Ordering::Relaxed);
    let workers = translator.workers().with_batch(BatchSize { sentences: 1, tokens: 1 });
    let translations = translator.translate_batch_with(&requests, &options, &workers, None);
    let after = COUNT.load(Ordering::Relaxed);
    let tokens = translations.unwrap()[0].alternatives[0].tokens.len();
    assert!(tokens + 1 >= length, "{tokens} tokens");
    // The result holds a string for every token.
    after - before - tokens
}

#[test]
fn steps_allocate_nothing() {
    let mut model = made_up_model(preset("rnnfc-s4", Some(400)).unwrap(), 1).unwrap();
    let lists = (0..400u32).map(|w| vec![w, (w * 7) % 400, (w * 13) % 400]).collect();
    model.shortlist = Some(peregrine::model::Shortlist::new(lists, 100, 400, 0));
    for precision in [Precision::Float32, Precision::Int16] {
        for functions in [Functions::Fast, Functions::Library] {
            let compute = Compute {
                precision: Some(precision),
                functions,
                speedups: Speedups { embeddings: 200, ..Speedups::default() },
                ..Compute::default()
            };
            let translator = Translator::prepare(model.clone(), &compute).unwrap();
            let options = translator.options().with_beam(6);
            // The first sentences bring all working memory to its size.
            for _ in 0..2 {
                allocations(&translator, &options, 60);
            }
            // Lists of the result grow by doubling: these two lengths fit the same size.
            let (short, long) =
                (allocations(&translator, &options, 36), allocations(&translator, &options, 62));
            assert_eq!(short, long, "{precision:?} {functions:?}: 36 and 62 steps");
        }
    }
}
