//! Messages on both sides of a link.

use std::borrow::Cow;

use telegrad_wire::{
    Buffer, CallId, FrameHeader, FrameKind, HEADER_LEN, IS_LENT, MAX_TENSORS, Payload, RawTensor, TensorMeta,
    TensorSource, TensorTable, WireError,
};

use crate::Credit;
use crate::shm::{Borrowed, LOAN_LEN, Loan, is_shared};

/// Longest frame on the control lane, header excluded; longer ones take a bulk lane.
///
/// Copying this much twice costs less than waking the thread that reads a bulk lane, and it is a small share of a
/// socket buffer, so that a call behind it is not delayed. It fits 64 KiB of tensors and their tables: sizes of
/// tensors tend to be powers of two.
pub const INLINE_LIMIT: u64 = 68 * 1024;

/// Shortest tensor that is lent and not copied into the frame.
const LEND_FROM: usize = 8 * 1024;

/// Shortest tensor that stays in lent memory; a shorter one is copied, and the loan returned at once.
const KEEP_FROM: usize = 64 * 1024;

/// Lends tensors to the other end.
pub(crate) trait Lender {
    /// Whether this many tensors, of this many bytes, can be lent now.
    fn can_lend(&self, tensors: usize, bytes: usize) -> bool;

    /// Lends a tensor, if that is possible now.
    fn lend(&self, index: u16, tensor: &dyn TensorSource) -> Option<Loan>;

    /// Takes back a loan that was never sent.
    fn revoke(&self, loan: Loan);
}

/// Borrows memory that the other end lends.
pub(crate) trait Borrower {
    /// The memory of a loan.
    fn borrow(&self, loan: &Loan, len: usize) -> Result<Borrowed, LoanError>;

    /// Returns a loan unused.
    fn decline(&self, loan: &Loan);
}

/// Why a loan cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoanError {
    /// It names memory that the other end does not share.
    Invalid,
    /// The memory cannot be mapped.
    NoMemory,
}

/// A message to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Kind, call and flags; the link fills in lengths and credit.
    pub header: FrameHeader,
    /// Body and tensors.
    pub payload: Payload,
}

impl Outgoing {
    /// Makes a message with this payload.
    pub fn new(kind: FrameKind, call: CallId, payload: Payload) -> Self {
        Self {
            header: FrameHeader::new(kind, call),
            payload,
        }
    }

    /// Makes a message without payload.
    pub fn bare(kind: FrameKind, call: CallId) -> Self {
        Self::new(kind, call, Payload::default())
    }

    /// Checks that a link with this `max_message` would send it.
    ///
    /// # Errors
    /// Those of [`send`](crate::Link::send).
    pub fn check(&self, max_message: u64) -> Result<(), WireError> {
        check_length(self.measure()?.0.length, max_message)
    }

    /// Computes the header's lengths, and the tensor table.
    #[inline]
    fn measure(&self) -> Result<(FrameHeader, Vec<u8>), WireError> {
        let mut header = self.header;
        let Payload { body, tensors, .. } = &self.payload;
        let table_len = tensors
            .iter()
            .map(|tensor| TensorTable::entry_len(tensor.shape()));
        let mut table = Vec::with_capacity(table_len.sum());
        let mut data = 0_u64;
        for tensor in tensors {
            TensorTable::push(&mut table, tensor.dtype(), tensor.shape())?;
            // A tensor whose length does not fit the machine cannot exist on it.
            data += tensor.byte_len().unwrap_or(0) as u64;
        }
        header.body_len = fits(body.len())?;
        header.table_len = fits(table.len())?;
        header.tensors = u16::try_from(tensors.len()).map_err(|_| WireError::TooManyTensors {
            count: tensors.len(),
            limit: MAX_TENSORS,
        })?;
        header.length = (body.len() + table.len()) as u64 + data;
        Ok((header, table))
    }

    /// Completes the header and computes the table. The payload's references are in the body already.
    pub(crate) fn seal(self) -> Result<Sealed, WireError> {
        let (header, table) = self.measure()?;
        let Payload { body, tensors, .. } = self.payload;
        Ok(Sealed {
            header,
            body,
            table,
            tensors,
        })
    }
}

/// Checks the length of a message, or of a part of one.
pub(crate) fn check_length(length: u64, limit: u64) -> Result<(), WireError> {
    if length > limit {
        return Err(WireError::FrameTooLong { length, limit });
    }
    Ok(())
}

fn fits(len: usize) -> Result<u32, WireError> {
    check_length(len as u64, u32::MAX.into())?;
    Ok(len as u32)
}

/// A message whose header is complete.
pub(crate) struct Sealed {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) table: Vec<u8>,
    pub(crate) tensors: Vec<Box<dyn TensorSource>>,
}

impl Sealed {
    /// Appends header, body and table.
    pub(crate) fn append_head(&self, out: &mut Vec<u8>) {
        out.reserve(HEADER_LEN + self.body.len() + self.table.len());
        out.extend_from_slice(&self.header.to_bytes());
        out.extend_from_slice(&self.body);
        out.extend_from_slice(&self.table);
    }

    /// Appends the whole frame, tensors included.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        self.append_head(out);
        for tensor in &self.tensors {
            tensor.with_bytes(&mut |bytes| out.extend_from_slice(bytes));
        }
    }

    /// Lends the tensors that are long enough, and returns the remaining small frame with its header.
    ///
    /// `None` if the frame would not be small, if more than `up_to` bytes had to be copied, or if lending is
    /// impossible now. All of that is checked before the first copy.
    pub(crate) fn lend(&self, lender: &dyn Lender, up_to: u64) -> Option<Vec<u8>> {
        let is_lent = |tensor: &dyn TensorSource| tensor.byte_len().is_some_and(|len| len >= LEND_FROM);
        let (mut count, mut lent, mut copied) = (0, 0, 0);
        for tensor in self.tensors.iter().filter(|tensor| is_lent(&***tensor)) {
            let len = tensor.byte_len()? as u64;
            count += 1;
            lent += len;
            copied += if is_shared(&**tensor) { 0 } else { len };
        }
        let records = size_of::<u16>() + count * LOAN_LEN;
        let length = self.header.length - lent + records as u64;
        if lent == 0 || length > INLINE_LIMIT || copied > up_to {
            return None;
        }
        if !lender.can_lend(count, usize::try_from(lent).ok()?) {
            return None;
        }
        let mut loans = Vec::new();
        for (index, tensor) in (0..).zip(&self.tensors) {
            if is_lent(&**tensor) {
                let Some(loan) = lender.lend(index, &**tensor) else {
                    loans.into_iter().for_each(|loan| lender.revoke(loan));
                    return None;
                };
                loans.push(loan);
            }
        }
        let header = FrameHeader {
            length,
            flags: self.header.flags | IS_LENT,
            ..self.header
        };
        let mut frame = Vec::with_capacity(HEADER_LEN + header.length as usize);
        frame.extend_from_slice(&header.to_bytes());
        frame.extend_from_slice(&self.body);
        frame.extend_from_slice(&self.table);
        frame.extend_from_slice(&(loans.len() as u16).to_le_bytes());
        for loan in loans {
            frame.extend_from_slice(&loan.to_bytes());
        }
        for tensor in self.tensors.iter().filter(|tensor| !is_lent(&***tensor)) {
            tensor.with_bytes(&mut |bytes| frame.extend_from_slice(bytes));
        }
        Some(frame)
    }

    /// Turns it back into the message that was sealed.
    pub(crate) fn unseal(self) -> Outgoing {
        Outgoing {
            header: self.header,
            payload: Payload {
                body: self.body,
                tensors: self.tensors,
                ..Payload::default()
            },
        }
    }
}

/// A received message.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The header as sent.
    pub header: FrameHeader,
    /// The MessagePack body; borrowed from the read buffer when the frame was small.
    pub body: Cow<'a, [u8]>,
    /// The tensors, each in memory of its own; none if `lacking` is not 0.
    pub tensors: Vec<RawTensor>,
    /// Bytes of the message for which this process had no memory; 0 if it is complete. The body then holds as much
    /// as there was memory for.
    pub lacking: u64,
    /// The message's credit. Dropping it returns the credit to the sender.
    pub credit: Credit,
    /// Further messages arrived with it and follow at once: answers may wait for each other.
    pub more: bool,
}

impl<'a> Incoming<'a> {
    /// Parses a complete frame; `frame` starts after the header.
    pub(crate) fn parse(
        mut header: FrameHeader,
        frame: &'a [u8],
        (lent, max_message): (&dyn Borrower, u64),
    ) -> Result<Self, WireError> {
        let (body, rest) = frame.split_at(header.body_len as usize);
        let (table, data) = rest.split_at(header.table_len as usize);
        let tensors = if header.flags & IS_LENT != 0 {
            let (metas, bytes) = TensorTable::entries(table, header.tensors)?;
            // The flag is cleared: from here on the message is as over any other link.
            header.flags &= !IS_LENT;
            header.length = ((body.len() + table.len()) as u64).saturating_add(bytes);
            check_length(header.length, max_message)?;
            let (loans, data) = loans(data)?;
            tensors(metas, data, loans, lent)?
        } else if header.tensors > 0 || !data.is_empty() {
            let metas = TensorTable::read(table, header.tensors, data.len() as u64)?;
            tensors(metas, data, &[], lent)?
        } else {
            Some(Vec::new())
        };
        let lacking = match tensors {
            Some(_) => 0,
            None => header.length - (body.len() + table.len()) as u64,
        };
        Ok(Self {
            header,
            body: Cow::Borrowed(body),
            tensors: tensors.unwrap_or_default(),
            lacking,
            credit: Credit::none(),
            more: false,
        })
    }
}

impl Incoming<'static> {
    /// Makes a message whose remaining `lacking` bytes had no memory.
    pub(crate) fn lacking(header: FrameHeader, body: Vec<u8>, lacking: u64) -> Self {
        Self {
            header,
            body: Cow::Owned(body),
            tensors: Vec::new(),
            lacking,
            credit: Credit::none(),
            more: false,
        }
    }
}

/// Splits `data` into the loans at its start and the bytes of the other tensors.
fn loans(data: &[u8]) -> Result<(&[[u8; LOAN_LEN]], &[u8]), WireError> {
    let split = || {
        let (count, rest) = data.split_first_chunk::<2>()?;
        let (records, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * LOAN_LEN)?;
        Some((records.as_chunks::<LOAN_LEN>().0, rest))
    };
    split().ok_or_else(|| broken("the list of lent tensors is cut short"))
}

/// Makes the tensors of a frame: lent ones in their loans, the others from `data`, which they use up. `None` without
/// memory for one of them; then all loans are returned.
fn tensors(
    metas: Vec<TensorMeta>,
    mut data: &[u8],
    loans: &[[u8; LOAN_LEN]],
    lent: &dyn Borrower,
) -> Result<Option<Vec<RawTensor>>, WireError> {
    let mut loans = loans.iter().map(Loan::from_bytes).peekable();
    let mut tensors = Vec::with_capacity(metas.len());
    let mut has_memory = true;
    for (index, meta) in (0_usize..).zip(metas) {
        let len = byte_len(&meta);
        let buffer = match loans.next_if(|loan| usize::from(loan.tensor) == index) {
            Some(loan) => {
                if !has_memory {
                    lent.decline(&loan);
                    continue;
                }
                match lent.borrow(&loan, len) {
                    Ok(borrowed) => borrowed.into_buffer(meta.dtype, KEEP_FROM),
                    Err(LoanError::NoMemory) => {
                        lent.decline(&loan);
                        None
                    }
                    Err(LoanError::Invalid) => {
                        return Err(broken("a tensor is lent in memory that is not shared"));
                    }
                }
            }
            None => {
                let (bytes, rest) = data
                    .split_at_checked(len)
                    .ok_or_else(|| broken("there are fewer bytes than the tensors have"))?;
                data = rest;
                Buffer::try_copy_from(meta.dtype, bytes)
            }
        };
        match buffer {
            Some(buffer) => tensors.push(RawTensor::new(meta, buffer)?),
            None => has_memory = false,
        }
    }
    if !data.is_empty() || loans.next().is_some() {
        return Err(broken("there is more than the tensors have"));
    }
    Ok(has_memory.then_some(tensors))
}

fn broken(what: &str) -> WireError {
    WireError::TensorTable { what: what.into() }
}

/// Bytes of a validated tensor.
pub(crate) fn byte_len(meta: &TensorMeta) -> usize {
    // `TensorTable::read` returns only metas whose byte length fits.
    meta.bytes().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has no shared memory.
    struct NoLoans;

    impl Borrower for NoLoans {
        fn borrow(&self, _: &Loan, _: usize) -> Result<Borrowed, LoanError> {
            Err(LoanError::Invalid)
        }

        fn decline(&self, _: &Loan) {}
    }

    /// The outcome of a frame with lent tensors of these shapes, and `data` after the table.
    fn parsed(shapes: &[usize], data: &[u8]) -> String {
        let mut frame = Vec::new();
        for &len in shapes {
            TensorTable::push(&mut frame, telegrad_wire::DType::U8, &[len]).unwrap();
        }
        let mut header = FrameHeader::new(FrameKind::Request, CallId(1));
        header.flags = IS_LENT;
        header.tensors = shapes.len() as u16;
        header.table_len = frame.len() as u32;
        frame.extend_from_slice(data);
        header.length = frame.len() as u64;
        match Incoming::parse(header, &frame, (&NoLoans, 1 << 20)) {
            Ok(message) => format!("{} tensors", message.tensors.len()),
            Err(error) => error.to_string(),
        }
    }

    /// The data of a frame that announces `count` loans and has those of `tensors`.
    fn loans_of(count: u16, tensors: &[u16]) -> Vec<u8> {
        let mut data = count.to_le_bytes().to_vec();
        for tensor in tensors {
            let mut loan = [0; LOAN_LEN];
            loan[..2].copy_from_slice(&tensor.to_le_bytes());
            data.extend_from_slice(&loan);
        }
        data
    }

    #[test]
    fn invalid_lent_frames_are_refused() {
        let says = |shapes: &[usize], data: &[u8], what: &str| {
            let text = parsed(shapes, data);
            assert!(text.contains(what), "{text}, not {what}");
        };
        let with = |mut data: Vec<u8>, bytes: usize| {
            data.resize(data.len() + bytes, 7);
            data
        };
        assert_eq!(parsed(&[4], &with(loans_of(0, &[]), 4)), "1 tensors");
        says(&[4], &[], "cut short");
        says(&[4], &[1], "cut short");
        says(&[4], &loans_of(1, &[]), "cut short");
        says(&[4], &loans_of(u16::MAX, &[0, 1]), "cut short");
        says(&[4], &with(loans_of(0, &[]), 3), "fewer bytes");
        says(&[4], &with(loans_of(0, &[]), 5), "more than the tensors have");
        says(&[4], &loans_of(1, &[0]), "memory that is not shared");
        // Loans of a missing tensor, out of order, or twice.
        says(&[4], &with(loans_of(1, &[1]), 4), "more than the tensors have");
        says(
            &[4, 4],
            &with(loans_of(2, &[1, 0]), 4),
            "memory that is not shared",
        );
        says(&[2 << 20], &loans_of(1, &[0]), "the limit is 1048576");
        says(&[usize::MAX / 2, usize::MAX / 2], &loans_of(2, &[0, 1]), "bytes");
    }
}
