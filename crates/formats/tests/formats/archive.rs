//! ZIP archives made by hand, correct or not.

use std::io::Write;

use flate2::Crc;
use flate2::write::DeflateEncoder;

/// A member to be written; its fields may lie.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) checksum: u32,
    pub(crate) length: u32,
    /// The size as it lies in the archive, if another than the data's is to be stated.
    pub(crate) compressed: Option<u32>,
    /// As PyTorch writes: sizes only in the directory, data aligned by an extra field.
    pub(crate) streamed: bool,
}

impl Member {
    pub(crate) fn stored(name: &str, data: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(data);
        Self {
            name: name.to_owned(),
            data: data.to_vec(),
            method: 0,
            flags: 0,
            checksum: crc.sum(),
            length: data.len() as u32,
            compressed: None,
            streamed: false,
        }
    }

    pub(crate) fn deflated(name: &str, data: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        let deflated = encoder.finish().unwrap();
        Self { data: deflated, method: 8, ..Self::stored(name, data) }
    }

    pub(crate) fn streamed(name: &str, data: &[u8]) -> Self {
        Self { streamed: true, flags: 0x0808, ..Self::stored(name, data) }
    }

    fn compressed(&self) -> u32 {
        self.compressed.unwrap_or(self.data.len() as u32)
    }

    /// The fields from the version to the length of the extra field.
    fn common(&self, sizes: [u32; 3], extra: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        push16(&mut bytes, &[20, self.flags, self.method, 0, 0]);
        push32(&mut bytes, &sizes);
        push16(&mut bytes, &[self.name.len() as u16, extra as u16]);
        bytes
    }

    fn local(&self, offset: usize) -> Vec<u8> {
        let mut sizes = [self.checksum, self.compressed(), self.length];
        let mut extra = 0;
        if self.streamed {
            sizes = [0; 3];
            let start = offset + 30 + self.name.len() + 4;
            extra = 4 + start.next_multiple_of(64) - start;
        }
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.extend(self.common(sizes, extra));
        bytes.extend(self.name.as_bytes());
        if extra > 0 {
            push16(&mut bytes, &[u16::from_le_bytes(*b"FB"), extra as u16 - 4]);
            bytes.resize(bytes.len() + extra - 4, b'Z');
        }
        bytes.extend(&self.data);
        if self.streamed {
            bytes.extend(b"PK\x07\x08");
            push32(&mut bytes, &[self.checksum, self.compressed(), self.length]);
        }
        bytes
    }

    fn directory_entry(&self, offset: u32, wide: bool) -> Vec<u8> {
        let mut bytes = b"PK\x01\x02".to_vec();
        push16(&mut bytes, &[20]);
        let mut sizes = [self.checksum, self.compressed(), self.length];
        let mut extra = Vec::new();
        let mut stated = offset;
        if wide {
            push16(&mut extra, &[0xcafe, 2, 7]); // a record that readers must step over
            push16(&mut extra, &[1, 24]);
            for value in [self.length, self.compressed(), offset] {
                extra.extend(u64::from(value).to_le_bytes());
            }
            sizes = [self.checksum, u32::MAX, u32::MAX];
            stated = u32::MAX;
        }
        bytes.extend(self.common(sizes, extra.len()));
        bytes.extend([0; 10]);
        push32(&mut bytes, &[stated]);
        bytes.extend(self.name.as_bytes());
        bytes.extend(extra);
        bytes
    }
}

/// An archive of these members.
pub(crate) fn archive(members: &[Member]) -> Vec<u8> {
    build(members, None, false)
}

/// The same with every size and offset in its 64-bit form.
pub(crate) fn archive_zip64(members: &[Member]) -> Vec<u8> {
    build(members, None, true)
}

/// An archive whose directory says that every member is where the first one is.
pub(crate) fn overlapping_archive(members: &[Member]) -> Vec<u8> {
    build(members, Some(0), false)
}

fn build(members: &[Member], offset_of_all: Option<u32>, wide: bool) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let offset = offset_of_all.unwrap_or(bytes.len() as u32);
        directory.extend(member.directory_entry(offset, wide));
        bytes.extend(member.local(bytes.len()));
    }
    let start = bytes.len();
    bytes.extend(&directory);
    if wide {
        push_zip64_end(&mut bytes, members.len() as u64, start as u64);
    }
    let count = if wide { u16::MAX } else { members.len() as u16 };
    let offset = if wide { u32::MAX } else { start as u32 };
    bytes.extend(b"PK\x05\x06");
    push16(&mut bytes, &[0, 0, count, count]);
    push32(&mut bytes, &[directory.len() as u32, offset]);
    push16(&mut bytes, &[7]);
    bytes.extend(b"comment");
    bytes
}

fn push_zip64_end(bytes: &mut Vec<u8>, count: u64, start: u64) {
    let record = bytes.len() as u64;
    bytes.extend(b"PK\x06\x06");
    bytes.extend(44u64.to_le_bytes());
    push16(bytes, &[45, 45]);
    push32(bytes, &[0, 0]);
    for value in [count, count, record - start, start] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(b"PK\x06\x07");
    push32(bytes, &[0]);
    bytes.extend(record.to_le_bytes());
    push32(bytes, &[1]);
}

fn push16(bytes: &mut Vec<u8>, values: &[u16]) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn push32(bytes: &mut Vec<u8>, values: &[u32]) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
