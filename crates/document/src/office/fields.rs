//! Fields of Word: what is computed, such as the number of a page, with the result that is shown.
//!
//! A field is a sequence of runs: one begins it, some say what it does, one separates that from the result, one ends it. The result
//! comes back as it is, unless the field is a link.

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::atom::{Atom, What};
use super::dialect::Class;
use crate::markup::reference::References;

/// Makes one atom of each field that begins and ends in the paragraph. A link goes round its words.
pub(crate) fn join_fields(atoms: &mut Vec<Atom>, document: &[u8]) {
    if !atoms.iter().any(|atom| matches!(atom.what, What::Field(_))) {
        return;
    }
    let fields = match_fields(atoms);
    let mut joined: Vec<Atom> = Vec::with_capacity(atoms.len());
    let mut closing: HashMap<usize, usize> = HashMap::new();
    let mut number = 0;
    while number < atoms.len() {
        let atom = &atoms[number];
        let start = atom.raw.start;
        let single = |what| Atom { what, raw: atom.raw.clone(), style: None };
        let (new, next) = match (&atom.what, fields.get(&number)) {
            (_, Some(&(separator, end))) => {
                match separator.filter(|_| is_link(&atoms[number..end])) {
                    Some(separator) => {
                        closing.insert(end, number);
                        let raw = start..atoms[separator].raw.end;
                        (Atom { what: What::Open, raw, style: None }, separator + 1)
                    }
                    None => {
                        let raw = start..atoms[end].raw.end;
                        (Atom { what: What::Mark(Class::Keep), raw, style: None }, end + 1)
                    }
                }
            }
            (What::Field(_), None) if closing.contains_key(&number) => {
                (single(What::Close), number + 1)
            }
            (What::Field(_), None) => (single(What::Mark(Class::Point)), number + 1),
            _ => (atom.clone(), number + 1),
        };
        joined.push(new);
        number = next;
    }
    // A result without text stands as a word.
    for atom in &mut joined {
        if atom.what == What::Mark(Class::Keep)
            && text_inside(&document[atom.raw.clone()]).is_empty()
        {
            atom.what = What::Mark(Class::Object);
        }
    }
    *atoms = joined;
}

/// For each atom with which a field begins, that with its separator and that with its end.
fn match_fields(atoms: &[Atom]) -> HashMap<usize, (Option<usize>, usize)> {
    let mut fields = HashMap::new();
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    // The fields that were open when a container began: none of them may end inside of it.
    let mut outside: Vec<usize> = Vec::new();
    for (number, atom) in atoms.iter().enumerate() {
        let floor = outside.last().copied().unwrap_or(0);
        match &atom.what {
            What::Open => outside.push(open.len()),
            What::Close => {
                open.truncate(floor);
                outside.pop();
            }
            What::Field(part) if part.is_odd => open.truncate(floor),
            What::Field(part) if part.begins && part.ends => {
                fields.insert(number, (None, number));
            }
            What::Field(part) if part.begins => {
                open.push((number, part.separates.then_some(number)));
            }
            What::Field(part) if part.ends && open.len() > floor => {
                if let Some((begin, separator)) = open.pop() {
                    let separator = separator.or(part.separates.then_some(number));
                    fields.insert(begin, (separator.filter(|&at| at < number), number));
                }
            }
            What::Field(part) if part.separates && open.len() > floor => {
                if let Some((_, separator)) = open.last_mut() {
                    separator.get_or_insert(number);
                }
            }
            _ => {}
        }
    }
    fields
}

/// Whether a field is a link.
fn is_link(atoms: &[Atom]) -> bool {
    let code = atoms.iter().find_map(|atom| match &atom.what {
        What::Field(part) if !part.code.trim().is_empty() => Some(part.code.trim_start()),
        _ => None,
    });
    code.is_some_and(|code| code.starts_with("HYPERLINK"))
}

/// The text that is shown of some elements.
pub(crate) fn text_inside(raw: &[u8]) -> String {
    let mut text = String::new();
    let mut reader = Reader::from_reader(raw);
    reader.config_mut().check_end_names = false;
    reader.config_mut().allow_unmatched_ends = true;
    let mut inside = false;
    loop {
        let from = reader.buffer_position() as usize;
        let Ok(event) = reader.read_event() else { return text };
        let to = reader.buffer_position() as usize;
        match event {
            Event::Start(tag) => inside = tag.local_name().as_ref() == "t",
            Event::End(_) => inside = false,
            Event::Text(_) | Event::GeneralRef(_) if inside => {
                References::Xml.decode(&raw[from..to], &mut text);
            }
            Event::Eof => return text,
            _ => {}
        }
    }
}
