//! Declarations against the sources of the kernels, and against what the compiler made of those.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::compiler::SOURCE;
use crate::device;
use crate::portable;
use crate::precision::GpuPrecision;

/// Types and names of parameters or fields, the types as they are declared here.
type Fields = Vec<(String, String)>;

fn kernels() -> impl Iterator<Item = &'static Declared> {
    OF_A_STRUCTURE.iter().chain(OF_PARAMETERS)
}

fn declared(kernel: &str) -> Option<&'static Declared> {
    kernels().find(|declared| declared.names.contains(&kernel))
}

fn fields(declared: &Declared) -> Fields {
    let owned = |&(name, kind): &(&str, &str)| (kind.to_owned(), name.to_owned());
    declared.fields.iter().map(owned).collect()
}

/// The sources without comments.
fn source() -> String {
    let code = |line: &'static str| line.split("//").next().unwrap_or_default();
    SOURCE.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The type of a declaration such as `const u32 *from`, as it is declared here, and its name.
fn field(declaration: &str) -> (String, String) {
    let declaration = declaration.replace('*', " * ");
    let words: Vec<&str> = declaration
        .split_whitespace()
        .filter(|word| !["const", "__grid_constant__"].contains(word))
        .collect();
    let kind = match words[..] {
        [_, "*", _] => "Address",
        ["u32", _] => "usize",
        ["float", _] => "f32",
        [other, _] => other,
        _ => panic!("{declaration}"),
    };
    (kind.to_owned(), words[words.len() - 1].to_owned())
}

/// The fields of a structure: `u32 a, b; const u32 *c, *d;`.
fn structure_fields(body: &str) -> Fields {
    let statements = body.split(';').filter(|statement| !statement.trim().is_empty());
    let of = |statement: &str| {
        let first = statement.split(',').next().unwrap_or_default();
        let kind = first.trim().rsplit_once(|c: char| c.is_whitespace() || c == '*');
        let kind = kind.map_or("", |(kind, _)| kind).trim_end_matches('*');
        let rest = statement.split(',').skip(1).map(|name| field(&format!("{kind} {name}")));
        std::iter::once(field(first)).chain(rest).collect::<Fields>()
    };
    statements.flat_map(of).collect()
}

/// A kernel of the sources: what it takes, and whether maps follow.
type Found = (Fields, bool);

/// All kernels of the sources. One may be there twice, for different precisions.
fn kernels_of_sources() -> BTreeMap<String, Vec<Found>> {
    let source = source();
    let mut found: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for after in source.split("__global__ void").skip(1) {
        let after = match after.trim_start().strip_prefix("__launch_bounds__") {
            Some(bounds) => bounds.split_once(") ").expect("the end of the bounds").1,
            None => after,
        };
        let (name, rest) = after.split_once('(').expect("parameters");
        let (parameters, _) = rest.split_once(')').expect("the end of the parameters");
        let (parameters, maps) = match parameters.trim().strip_suffix("MAPS") {
            Some(parameters) => (parameters, true),
            None => (parameters, false),
        };
        let fields: Fields = parameters.split(',').map(field).collect();
        for name in written_out(&source, name.trim()) {
            found.entry(name).or_default().push((fields.clone(), maps));
        }
    }
    found
}

/// The name, or those a macro makes of it.
fn written_out(source: &str, name: &str) -> Vec<String> {
    let (prefix, macro_name) = match name.split_once("##") {
        None => return vec![name.to_owned()],
        Some((prefix, "name")) => (prefix, "WIDE_PRODUCT("),
        // Both macros of attention kernels are used with the same suffixes.
        Some((prefix, _)) => (prefix, "ATTEND_ROWS("),
    };
    let uses = source.lines().filter_map(|line| line.strip_prefix(macro_name));
    uses.filter_map(|line| Some(format!("{prefix}{}", line.split_once(',')?.0))).collect()
}

#[test]
fn every_kernel_takes_what_is_declared_for_it() {
    let sources = kernels_of_sources();
    for (name, found) in &sources {
        let declared = declared(name).unwrap_or_else(|| panic!("{name} is not declared"));
        for (parameters, maps) in found {
            assert_eq!((parameters, *maps), (&fields(declared), declared.maps), "{name}");
        }
    }
    let names =
        |names: &mut dyn Iterator<Item = &'static str>| -> BTreeSet<&str> { names.collect() };
    let declared = names(&mut kernels().flat_map(|declared| declared.names).copied());
    let written: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
    assert_eq!(declared, written);
    // Those that are looked for in a compiled module.
    assert_eq!(declared, names(&mut GpuPrecision::ALL.into_iter().flat_map(device::kernels)));
}

#[test]
fn structures_have_the_fields_that_are_declared() {
    let source = source();
    for declared in STRUCTURES {
        let [name] = declared.names else { panic!("one name") };
        let (_, body) = source.split_once(&format!("\nstruct {name} {{")).expect(name);
        let (body, _) = body.split_once('}').expect(name);
        assert_eq!(structure_fields(body), fields(declared), "{name}");
    }
}

/// Bytes of the parameters of a kernel, from its declaration in PTX: `.param .align 8 .b8 name[80]` is a
/// structure, `.param .u32 name` a number.
fn parameter_sizes(ptx: &str, kernel: &str) -> Vec<(usize, usize)> {
    let (_, entry) = ptx.split_once(&format!(".entry {kernel}(")).expect(kernel);
    let (parameters, _) = entry.split_once(')').expect(kernel);
    let size = |parameter: &str| match parameter.split_whitespace().collect::<Vec<_>>()[..] {
        [".param", ".align", alignment, ".b8", name] => {
            let size = name.split_once('[').and_then(|(_, size)| size.strip_suffix(']'));
            (number(size.expect(name)), number(alignment))
        }
        [".param", kind, _] => {
            let size = number(kind.trim_start_matches(|c: char| !c.is_ascii_digit())) / 8;
            (size, size)
        }
        _ => panic!("{parameter}"),
    };
    parameters.split(',').map(size).collect()
}

fn number(text: &str) -> usize {
    text.parse().expect(text)
}

/// Bytes and alignment of a declared type.
fn size(kind: &str) -> (usize, usize) {
    match kind {
        "Address" | "u64" => (8, 8),
        "usize" | "f32" => (4, 4),
        name => {
            let declared = STRUCTURES.iter().find(|declared| declared.names == [name]);
            let declared = declared.expect(name);
            let alignments = declared.fields.iter().map(|(_, kind)| size(kind).1);
            ((declared.bytes)(), alignments.max().unwrap_or(1))
        }
    }
}

#[test]
fn parameters_are_as_large_as_the_compiler_has_them() {
    for precision in GpuPrecision::ALL {
        let ptx = String::from_utf8(portable::kernels(precision).expect("whole")).expect("text");
        for kernel in device::kernels(precision) {
            let declared = declared(kernel).expect(kernel);
            let sizes: Vec<_> = declared.fields.iter().map(|(_, kind)| size(kind)).collect();
            let compiled = parameter_sizes(&ptx, kernel);
            assert_eq!(sizes, compiled, "{kernel}");
            let end = |end: usize, &(size, alignment): &(usize, usize)| {
                end.next_multiple_of(alignment) + size
            };
            assert_eq!((declared.bytes)(), compiled.iter().fold(0, end), "{kernel}");
        }
    }
}

#[test]
fn values_lie_as_c_lays_them_out() {
    let mut bytes = vec![9; 5];
    let norm = Norm { scale: 2, bias: 3, epsilon: 1.0, centred: 4 };
    let normed = NormedProduct { p: Product::default(), raw: 1, norm, width: 5 };
    append(&normed, &mut bytes).expect("small numbers");
    let values = &bytes[5..];
    assert_eq!(values.len(), 104 + 8 + 24 + 4);
    assert_eq!((values[104], values[112], values[120]), (1, 2, 3));
    assert_eq!((&values[128..132], values[132], values[136]), (&1_f32.to_le_bytes()[..], 4, 5));
}

#[test]
fn numbers_that_kernels_cannot_take_are_refused() {
    let mut bytes = vec![9; 5];
    let clear = ClearRows { stride: 1 << 32, ..ClearRows::default() };
    let error = append(&clear, &mut bytes).expect_err("too large").to_string();
    assert!(error.contains("4294967296"), "{error}");
    assert_eq!(bytes, [9; 5]);
}
