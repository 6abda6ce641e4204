//! MESSAGE frames of single logs: what `service/loghub_service/pulsar/broker/delivery.py` and
//! `.../pulsar/wire/message_heads.py` do.

use crate::protobuf::{put_varint, tag, varint_size, VARINT};

/// Of a BaseCommand with a MESSAGE, before the size of its message: its type, and the key of the message.
const BEGIN: [u8; 3] = [0x08, 9, 0x4A];
const REDELIVERIES: u64 = tag(3, VARINT);
/// Of the size of the command, which the size of the frame counts.
const LENGTH_BYTES: usize = 4;

/// The parts of the heads that all frames of one log group to one consumer have.
pub struct Heads<'a> {
    pub consumer: &'a [u8],
    pub ledger: &'a [u8],
    pub partition: &'a [u8],
    pub epoch: &'a [u8],
}

impl Heads<'_> {
    /// The frame of one entry, which is far smaller than 4 GiB.
    pub fn put_frame(&self, out: &mut Vec<u8>, number: u64, times: u64, entry: &[u8]) {
        let place = self.ledger.len() + varint_size(number) + self.partition.len();
        let redelivered = if times == 0 {
            0
        } else {
            1 + varint_size(times)
        };
        let command = self.consumer.len()
            + varint_size(place as u64)
            + place
            + redelivered
            + self.epoch.len();
        let body = BEGIN.len() + varint_size(command as u64) + command;
        let size = LENGTH_BYTES + body + entry.len();
        out.extend_from_slice(&(size as u32).to_be_bytes());
        out.extend_from_slice(&(body as u32).to_be_bytes());
        out.extend_from_slice(&BEGIN);
        put_varint(out, command as u64);
        out.extend_from_slice(self.consumer);
        put_varint(out, place as u64);
        out.extend_from_slice(self.ledger);
        put_varint(out, number);
        out.extend_from_slice(self.partition);
        if times > 0 {
            put_varint(out, REDELIVERIES);
            put_varint(out, times);
        }
        out.extend_from_slice(self.epoch);
        out.extend_from_slice(entry);
    }
}
