//! Splits the bytes of one stream of a worker into lines with its name.

use anstyle::Style;

/// The longest line. Longer lines are split, so that a worker that never ends a line cannot exhaust the launcher's memory.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// The incomplete last line of a stream.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: Vec<u8>,
    partial: Vec<u8>,
}

impl Lines {
    /// Lines of the worker `name`, which is padded to `width`.
    pub(super) fn new(name: &str, width: usize, style: Style) -> Self {
        let prefix = format!("{style}{name:width$} |{style:#} ").into_bytes();
        Lines {
            prefix,
            partial: Vec::new(),
        }
    }

    /// Appends the lines that `bytes` completes to `text`; keeps the rest. Any encoding passes: only line ends matter.
    pub(super) fn push(&mut self, bytes: &[u8], text: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= MAX_LINE {
                self.finish(text);
            }
        }
    }

    /// Appends the incomplete line, if any, to `text`.
    pub(super) fn finish(&mut self, text: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        text.extend_from_slice(&self.prefix);
        text.append(&mut self.partial);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(pieces: &[&[u8]]) -> Vec<u8> {
        let mut lines = Lines::new("a", 2, Style::new());
        let mut text = Vec::new();
        pieces.iter().for_each(|piece| lines.push(piece, &mut text));
        lines.finish(&mut text);
        text
    }

    #[test]
    fn lines_are_joined_and_prefixed() {
        assert_eq!(
            through(&[b"on", b"e\ntwo\n\nth", b"ree"]),
            b"a  | one\na  | two\na  | \na  | three\n"
        );
        assert_eq!(through(&[]), b"");
    }

    #[test]
    fn bytes_that_are_not_text_pass() {
        assert_eq!(through(&[b"\xff\x00\xfe\r\n"]), b"a  | \xff\x00\xfe\r\n");
    }

    #[test]
    fn a_line_that_never_ends_is_split() {
        let chunk = vec![b'x'; 64 * 1024];
        let mut lines = Lines::new("a", 1, Style::new());
        let mut text = Vec::new();
        for _ in 0..MAX_LINE / chunk.len() {
            assert!(text.is_empty());
            lines.push(&chunk, &mut text);
        }
        assert_eq!(text.len(), b"a | ".len() + MAX_LINE + 1);
    }

    #[test]
    fn a_colour_ends_before_the_text() {
        let style = Style::new().fg_color(Some(anstyle::AnsiColor::Cyan.into()));
        let mut text = Vec::new();
        Lines::new("a", 1, style).push(b"x\n", &mut text);
        assert_eq!(text, b"\x1b[36ma |\x1b[0m x\n");
    }
}
