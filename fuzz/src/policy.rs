//! What a guest with a policy says to the outside, and what resolvers answer.

use ringway_nat::policy::hello::{HELLO_LEN_MAX, Hello, HelloReader, HelloRefusal};

/// Most bytes of a record that an input chooses.
const RECORD_LEN_MAX: usize = 300;

/// The first bytes of a connection: as they are, in records, or as extensions of a hello.
pub(crate) fn hello(data: &[u8]) {
    let Some((&[how, len, cut], rest)) = data.split_first_chunk() else { return };
    let len = usize::from(len) * 2 % RECORD_LEN_MAX + 1;
    let bytes = match how & 3 {
        0 => rest.to_vec(),
        1 => in_records(rest, len),
        2 => in_records(&message(rest), len),
        _ => in_records(&message(&with_extensions(rest)), len),
    };
    let mut reader = HelloReader::default();
    let mut before = Hello::More;
    for end in (0..bytes.len()).step_by(usize::from(cut) * 4 + 1).chain([bytes.len()]) {
        let now = reader.read(&bytes[..end]);
        assert!(before == Hello::More || before == now, "{before:?}, then {now:?}");
        before = now;
    }
    assert_eq!(HelloReader::default().read(&bytes), before, "the same in one piece");
    if bytes.len() >= HELLO_LEN_MAX {
        assert_ne!(before, Hello::More, "it has an end");
    }
    let is_a_record = bytes.first().is_none_or(|kind| *kind == 22);
    assert!(is_a_record || before == Hello::Refused(HelloRefusal::NotTls));
}

fn in_records(message: &[u8], len: usize) -> Vec<u8> {
    let records = message.chunks(len).map(|part| [&[22, 3, 1][..], &list(part)].concat());
    records.collect::<Vec<_>>().concat()
}

fn list(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes()[..], bytes].concat()
}

/// The message of a hello with that body.
fn message(body: &[u8]) -> Vec<u8> {
    [&[1, 0][..], &list(body)].concat()
}

/// The body of a hello that has a `server_name` among its extensions: one choice of content, kind
/// and bytes for each pair of the input.
fn with_extensions(data: &[u8]) -> Vec<u8> {
    let mut extensions = Vec::new();
    for &[kind, choice] in data.as_chunks().0.iter().take(64) {
        let content = match choice % 8 {
            0 => vec![choice],
            1 => list(&[&[0][..], &list(b"192.0.2.1")].concat()),
            2 => list(&[&[kind & 1][..], &list(&[b'a', b'.', choice])].concat()),
            3 => list(data.get(..usize::from(choice)).unwrap_or_default()),
            _ => list(&[&[0][..], &list(b"a.example.org")].concat()),
        };
        extensions.extend([&[0, kind & choice][..], &list(&content)].concat());
    }
    [&[3, 3][..], &[0; 32], &[0], &list(&[0x13, 1]), &[1, 0], &list(&extensions)].concat()
}
