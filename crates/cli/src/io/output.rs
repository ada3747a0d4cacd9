//! Where translations go: a file that grows in place, or standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, bail};

use peregrine_args::hash::Hash;
use peregrine_args::lines::is_standard;

/// An output that knows what was written to it. Its errors name it.
pub(crate) struct Output {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
    /// Bytes written, those of earlier runs included.
    pub(crate) bytes: u64,
    /// The hash of these bytes.
    pub(crate) hash: Hash,
}

impl Output {
    fn new(writer: Box<dyn Write>, name: String) -> Output {
        Output { writer: BufWriter::new(writer), name, bytes: 0, hash: Hash::default() }
    }

    /// Standard output for no path or `-`, else a file, which is emptied.
    pub(crate) fn create(path: Option<&Path>) -> anyhow::Result<Output> {
        match path.filter(|path| !is_standard(path)) {
            None => Ok(Output::new(Box::new(io::stdout()), "standard output".into())),
            Some(path) => {
                let name = path.display().to_string();
                let file = File::create(path).with_context(|| name.clone())?;
                Ok(Output::new(Box::new(file), name))
            }
        }
    }

    /// A file at the end of its first `bytes`, whose hash must be `hash`; what it has beyond them is
    /// cut off.
    pub(crate) fn go_on(path: &Path, bytes: u64, hash: u64) -> anyhow::Result<Output> {
        let name = path.display().to_string();
        let mut file =
            OpenOptions::new().read(true).write(true).open(path).with_context(|| name.clone())?;
        let found = hash_of(&mut file, bytes).with_context(|| name.clone())?;
        if found.0 != bytes {
            bail!("{name}: {} bytes, but the checkpoint knows of {bytes}: it was changed", found.0);
        }
        if found.1.value() != hash {
            bail!("{name}: its first {bytes} bytes are not those that were written");
        }
        file.set_len(bytes).with_context(|| name.clone())?;
        file.seek(SeekFrom::End(0)).with_context(|| name.clone())?;
        Ok(Output { bytes, hash: found.1, ..Output::new(Box::new(file), name) })
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.name))
    }
}

/// How many of the next `most` bytes there are, and their hash.
fn hash_of(file: &mut File, most: u64) -> io::Result<(u64, Hash)> {
    let mut hash = Hash::default();
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 16];
    let mut file = file.take(most);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hash));
        }
        bytes += read as u64;
        hash.add(&buffer[..read]);
    }
}

impl Write for Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(data).map_err(|error| self.named(error))?;
        self.bytes += written as u64;
        self.hash.add(&data[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().map_err(|error| self.named(error))
    }
}
