//! Pickles and PyTorch files made by hand, correct or not.

use crate::archive::{Member, archive};

/// The instructions that build a state dictionary of tensors.
pub(crate) fn state_dict(tensors: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut pickle = b"\x80\x02ccollections\nOrderedDict\n)R(".to_vec();
    for (name, tensor) in tensors {
        pickle.extend(text(name));
        pickle.extend(tensor);
    }
    pickle.extend(b"u.");
    pickle
}

/// A tensor as the arguments of the call that rebuilds it.
pub(crate) struct Rebuild<'a> {
    pub(crate) storage_type: &'a str,
    pub(crate) key: &'a str,
    pub(crate) elements: i64,
    pub(crate) offset: i64,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: &'a [i64],
}

impl Rebuild<'_> {
    pub(crate) fn pickle(&self) -> Vec<u8> {
        self.with_identifier_end(b"")
    }

    /// In legacy files identifiers have a sixth field.
    pub(crate) fn legacy_pickle(&self) -> Vec<u8> {
        self.with_identifier_end(b"N")
    }

    fn with_identifier_end(&self, end: &[u8]) -> Vec<u8> {
        let mut pickle = b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
        pickle.extend(text("storage"));
        pickle.extend(format!("ctorch\n{}\n", self.storage_type).into_bytes());
        pickle.extend(text(self.key));
        pickle.extend(text("cpu"));
        pickle.extend(integer(self.elements));
        pickle.extend(end);
        pickle.extend(b"tQ");
        pickle.extend(integer(self.offset));
        pickle.extend(tuple(self.shape));
        pickle.extend(tuple(self.strides));
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
        pickle
    }
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut pickle = vec![b'X'];
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.as_bytes());
    pickle
}

/// The shortest instruction for a number, as Python's pickler chooses it.
pub(crate) fn integer(value: i64) -> Vec<u8> {
    let (instruction, length): (&[u8], usize) = match value {
        0..=0xff => (b"K", 1),
        0x100..=0xffff => (b"M", 2),
        _ if i32::try_from(value).is_ok() => (b"J", 4),
        _ => (b"\x8a\x08", 8),
    };
    [instruction, &value.to_le_bytes()[..length]].concat()
}

fn tuple(values: &[i64]) -> Vec<u8> {
    let mut pickle = vec![b'('];
    pickle.extend(values.iter().flat_map(|&value| integer(value)));
    pickle.push(b't');
    pickle
}

/// A PyTorch archive of a pickle and storages.
pub(crate) fn torch_file(pickle: &[u8], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let mut members = vec![
        Member::streamed("archive/data.pkl", pickle),
        Member::streamed("archive/byteorder", b"little"),
    ];
    for (key, data) in storages {
        members.push(Member::streamed(&format!("archive/data/{key}"), data));
    }
    members.push(Member::streamed("archive/version", b"3\n"));
    archive(&members)
}

/// A file of the format before archives.
pub(crate) fn legacy_torch_file(pickle: &[u8], storages: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut bytes = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    bytes.extend(b"\x80\x02M\xe9\x03.");
    bytes.extend(b"\x80\x02}q\x00(");
    bytes.extend(text("protocol_version"));
    bytes.extend(integer(1001));
    bytes.extend(text("little_endian"));
    bytes.extend(b"\x88u.");
    bytes.extend(pickle);
    bytes.extend(b"\x80\x02](");
    storages.iter().for_each(|(key, ..)| bytes.extend(text(key)));
    bytes.extend(b"e.");
    for (_, elements, data) in storages {
        bytes.extend(elements.to_le_bytes());
        bytes.extend(*data);
    }
    bytes
}
