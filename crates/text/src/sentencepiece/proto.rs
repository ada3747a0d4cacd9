//! The part of the protobuf wire format that a SentencePiece model needs.
//!
//! A message is a run of fields: a key (`number << 3 | wire type`) and a value. Values borrow from the
//! input, so a length in the file can never cause an allocation.

/// One field's value, as far as the wire says what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Malformed {
    /// Offset in the message.
    pub(super) at: usize,
    pub(super) problem: &'static str,
}

/// Iterates over the fields of a message; ends after the first malformed one.
pub(super) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

/// The fields of `message`, in file order.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { message, at: 0 }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let rest = &self.message[self.at..];
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = rest.get(..length).ok_or(Malformed {
            at: self.at,
            problem: "a value runs past the end of its message",
        })?;
        self.at += length;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed { at: start, problem: "a number has more than ten bytes" })
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let start = self.at;
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            _ => return Err(Malformed { at: start, problem: "an unknown wire type" }),
        };
        Ok((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_wire_type() {
        let message = b"\x08\x96\x01\x12\x02hi\x1d\x01\0\0\0\x21\0\0\0\0\0\0\0\0";
        let read: Vec<_> = fields(message).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed32(1)),
            (4, Value::Fixed64),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn stops_at_the_first_fault() {
        let bad: [&[u8]; 4] = [b"\x12\xff\xff\xff\xff\x0fx", b"\x08", b"\x0b", &[0xFF; 20]];
        for message in bad {
            let read: Vec<_> = fields(message).collect();
            assert!(matches!(read.as_slice(), [Err(_)]), "{message:?}: {read:?}");
        }
    }
}
