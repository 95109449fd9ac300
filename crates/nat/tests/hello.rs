//! Hellos of TLS as clients send them, and as nothing should: what is read is the one host that a
//! whole hello names, however it is cut.

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_nat::policy::hello::UNRECOGNIZED_NAME;
use ringway_nat::policy::hello::{HELLO_LEN_MAX, Hello, HelloReader, HelloRefusal};
use ringway_nat::policy::name::HostName;

/// The hello that `openssl s_client -servername pypi.org` of OpenSSL 3.0.19 sends.
const OPENSSL: &str = "\
    160301013501000131030311e59de283d868867f9bdb60a0c94f773ca43042e1fd477044be1733382d746120cb\
    8b0ff7d5aeb1f739ad838aaf9870246c0e7032141d0e66a972365e07ec1145003e130213031301c02cc030009f\
    cca9cca8ccaac02bc02f009ec024c028006bc023c0270067c00ac0140039c009c0130033009d009c003d003c00\
    35002f00ff010000aa0000000d000b000008707970692e6f7267000b000403000102000a00160014001d001700\
    1e0019001801000101010201030104002300000016000000170000000d002a0028040305030603080708080809\
    080a080b080408050806040105010601030303010302040205020602002b0009080304030303020301002d0002\
    0101003300260024001d0020ca4956737f858d92d8b2dec09f411b11ddb194cbffe8610726b9cf74ea0cce13";

const SERVER_NAME: u16 = 0;
const KEY_SHARE: u16 = 51;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
const GREASE: u16 = 0x3a3a;
/// X25519 and ML-KEM-768 in one (4,588), in bytes.
const HYBRID_SHARE_LEN: usize = 1216;

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// Bytes behind their length in two bytes.
fn list(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("short");
    [&len.to_be_bytes()[..], bytes].concat()
}

type Extension = (u16, Vec<u8>);

fn server_name(name: &str) -> Extension {
    (SERVER_NAME, list(&[&[0][..], &list(name.as_bytes())].concat()))
}

fn others() -> Vec<Extension> {
    let share = [&[0x11, 0xec][..], &list(&[7; HYBRID_SHARE_LEN])].concat();
    vec![
        (GREASE, vec![]),
        (43, vec![2, 3, 4]),
        (KEY_SHARE, list(&share)),
        (ENCRYPTED_HELLO, vec![0, 0, 1, 0, 1, 5, 0, 0, 0, 16]),
        (16, list(b"\x02h2")),
        (0x4a4a, vec![0]),
    ]
}

/// A hello as a message of the handshake.
fn message(extensions: &[Extension]) -> Vec<u8> {
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &list(content)].concat())
        .collect();
    let suites = [0x2a, 0x2a, 0x13, 1, 0x13, 2];
    let body = [&[3, 3][..], &[9; 32], &[32], &[8; 32], &list(&suites), &[1, 0]].concat();
    in_message(&[&body[..], &list(&extensions)].concat())
}

fn in_message(body: &[u8]) -> Vec<u8> {
    let [_, len @ ..] = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[1][..], &len, body].concat()
}

/// A message in records of such lengths; the last one has the rest.
fn in_records(message: &[u8], lens: &[usize]) -> Vec<u8> {
    let (mut rest, mut records) = (message, Vec::new());
    for len in lens.iter().copied().chain([usize::MAX]) {
        let (part, behind) = rest.split_at(len.clamp(1, 1 << 14).min(rest.len()));
        if !part.is_empty() {
            records.extend([&[22, 3, 1][..], &list(part)].concat());
        }
        rest = behind;
    }
    records
}

fn hello(extensions: &[Extension]) -> Vec<u8> {
    in_records(&message(extensions), &[])
}

fn named(name: &str) -> Hello {
    Hello::Name(HostName::parse(name).expect("a name"))
}

fn read(bytes: &[u8]) -> Hello {
    HelloReader::default().read(bytes)
}

const fn refused(why: HelloRefusal) -> Hello {
    Hello::Refused(why)
}

#[test]
fn hellos_of_clients_are_read() {
    assert_eq!(read(&unhex(OPENSSL)), named("pypi.org"));
    let mut extensions = others();
    extensions.push(server_name("Files.PythonHosted.org"));
    assert!(hello(&extensions).len() > 1300, "longer than a segment");
    for at in 0..extensions.len() {
        extensions.rotate_left(at);
        assert_eq!(read(&hello(&extensions)), named("files.pythonhosted.org"));
    }
    for version in 0..=4 {
        let mut bytes = unhex(OPENSSL);
        bytes[2] = version;
        assert_eq!(read(&bytes), named("pypi.org"));
    }
}

#[test]
fn what_follows_a_hello_is_not_looked_at() {
    for more in [&[23, 3, 3, 0, 1, 0][..], &[22, 9], &[0xff; 20_000]] {
        assert_eq!(read(&[&unhex(OPENSSL)[..], more].concat()), named("pypi.org"));
    }
    let another = [message(&[server_name("a.b")]), message(&[server_name("c.d")])].concat();
    assert_eq!(read(&in_records(&another, &[])), refused(HelloRefusal::Malformed), "one record");
}

#[test]
fn every_beginning_of_a_hello_is_waited_for() {
    let extensions: Vec<Extension> = others().into_iter().chain([server_name("a.org")]).collect();
    for whole in [unhex(OPENSSL), in_records(&message(&extensions), &[1, 1, 1, 1, 40, 500, 700])] {
        let mut reader = HelloReader::default();
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), Hello::More, "{len}");
            assert_eq!(reader.read(&whole[..len]), Hello::More, "{len}");
        }
        assert!(matches!(reader.read(&whole), Hello::Name(_)));
    }
}

#[test]
fn a_hello_in_records_of_one_byte_is_read() {
    let message = message(&[server_name("a.org")]);
    let lens = vec![1; message.len()];
    assert_eq!(read(&in_records(&message, &lens)), named("a.org"));
}

#[test]
fn what_is_no_hello_is_refused_at_its_first_bytes() {
    for begin in [
        &b"GET / HTTP/1.1"[..],
        b"SSH-2.0",
        &[0x80, 0x2e, 1, 3, 1],
        &[22, 2],
        &[22, 3, 1, 0, 5, 2],
        &[23, 3, 3, 0, 1],
        &[21, 3, 1, 0, 2, 2, 40],
        &[22, 3, 1, 0, 1, 1, 20],
    ] {
        assert_eq!(read(begin), refused(HelloRefusal::NotTls), "{begin:?}");
    }
    for len in [[0, 0], [0x40, 1]] {
        let begin = [22, 3, 1, len[0], len[1]];
        assert_eq!(read(&begin), refused(HelloRefusal::Malformed));
    }
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0, 0x40, 0]), refused(HelloRefusal::TooLong));
}

#[test]
fn hellos_that_name_no_single_host_are_refused() {
    let of = |extension: Extension| read(&hello(&[extension]));
    assert_eq!(read(&hello(&others())), refused(HelloRefusal::NoName));
    assert_eq!(read(&hello(&[])), refused(HelloRefusal::NoName));
    for literal in ["192.0.2.1", "::1", "127.1", "2130706433", "192.0.2.1.", "2001:db8::1"] {
        assert_eq!(of(server_name(literal)), refused(HelloRefusal::Literal), "{literal}");
    }
    for wrong in ["", ".", "a..b", "a b", "*.a", "[::1]", "\u{e4}.de", "a\0.org"] {
        assert_eq!(of(server_name(wrong)), refused(HelloRefusal::Malformed), "{wrong:?}");
    }
    let twice = [server_name("a.org"), (GREASE, vec![]), server_name("a.org")];
    assert_eq!(read(&hello(&twice)), refused(HelloRefusal::TwoNames));
    let entry = |name: &[u8]| [&[0][..], &list(name)].concat();
    let two = list(&[entry(b"a.org"), entry(b"b.org")].concat());
    assert_eq!(of((SERVER_NAME, two)), refused(HelloRefusal::TwoNames));
    for wrong in [
        vec![],
        list(&[]),
        list(&[1, 0, 1, b'a']),
        list(&[0, 0, 9, b'a']),
        [list(&entry(b"a.org")), vec![0]].concat(),
    ] {
        assert_eq!(of((SERVER_NAME, wrong)), refused(HelloRefusal::Malformed));
    }
}

#[test]
fn lengths_that_do_not_fit_are_malformed() {
    let good = message(&[server_name("a.org")]);
    for len in 4..good.len() {
        let cut = in_records(&in_message(&good[4..len]), &[]);
        // Hellos of TLS 1.2 may end where extensions begin.
        let begin = 4 + 2 + 32 + 33 + 8 + 2;
        let why = if len == begin { HelloRefusal::NoName } else { HelloRefusal::Malformed };
        assert_eq!(read(&cut), refused(why), "{len}");
    }
    // The number of the session, the suites, and the ways to compress.
    let (session, suites, ways) = (4 + 2 + 32, 4 + 2 + 32 + 33, 4 + 2 + 32 + 33 + 8);
    for (at, len, list) in [
        (session, 33, [&[33][..], &[0; 33]].concat()),
        (suites, 8, vec![0, 3, 1, 2, 3]),
        (suites, 8, vec![0, 0]),
        (ways, 2, vec![0]),
    ] {
        let other = [&good[4..at], &list, &good[at + len..]].concat();
        let read = read(&in_records(&in_message(&other), &[]));
        assert_eq!(read, refused(HelloRefusal::Malformed), "{at}");
    }
    let longer = in_message(&[&good[4..], &[0]].concat());
    assert_eq!(read(&in_records(&longer, &[])), refused(HelloRefusal::Malformed));
}

#[test]
fn a_hello_that_does_not_end_is_refused() {
    let long = message(&[(21, vec![0; HELLO_LEN_MAX - 200]), server_name("a.org")]);
    let whole = in_records(&long, &[]);
    assert!(whole.len() <= HELLO_LEN_MAX);
    assert_eq!(read(&whole), named("a.org"));
    // The headers of records count, too.
    let cut = in_records(&long, &vec![9; long.len()]);
    assert_eq!(read(&cut[..HELLO_LEN_MAX - 1]), Hello::More);
    assert_eq!(read(&cut[..HELLO_LEN_MAX]), refused(HelloRefusal::TooLong));
    assert_eq!(read(&cut), refused(HelloRefusal::TooLong));
}

#[test]
fn the_alert_is_fatal_and_says_that_the_name_is_not_known() {
    assert_eq!(UNRECOGNIZED_NAME, *b"\x15\x03\x03\x00\x02\x02\x70");
}

proptest! {
    #[test]
    fn pieces_and_records_do_not_matter(
        order in Just(others()).prop_shuffle(),
        at in 0..=6usize,
        lens in vec(1..1500usize, 0..12),
        mut ends in vec(0..4000usize, 0..20),
    ) {
        let mut extensions = order;
        extensions.insert(at, server_name("x.example.net"));
        let whole = in_records(&message(&extensions), &lens);
        let mut reader = HelloReader::default();
        ends.sort_unstable();
        for end in ends.into_iter().filter(|end| *end < whole.len()) {
            prop_assert_eq!(reader.read(&whole[..end]), Hello::More);
        }
        prop_assert_eq!(reader.read(&whole), named("x.example.net"));
    }

    #[test]
    fn pieces_do_not_matter_whatever_comes(
        begin in prop::sample::select(vec![
            vec![], vec![22, 3, 1], vec![22, 3, 1, 0, 9, 1, 0, 0], unhex(OPENSSL),
        ]),
        mut more in vec(any::<u8>(), 0..400),
        changes in vec((0..400usize, any::<u8>()), 0..4),
        mut ends in vec(0..800usize, 0..20),
    ) {
        let mut bytes = begin;
        bytes.append(&mut more);
        for (at, byte) in changes {
            if let Some(to) = bytes.get_mut(at) {
                *to = byte;
            }
        }
        ends.sort_unstable();
        ends.push(bytes.len());
        let mut reader = HelloReader::default();
        let mut before = Hello::More;
        for end in ends {
            let so_far = &bytes[..end.min(bytes.len())];
            let now = reader.read(so_far);
            prop_assert_eq!(&now, &read(so_far));
            prop_assert!(before == Hello::More || before == now);
            before = now;
        }
    }
}
