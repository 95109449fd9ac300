//! For how long a guest hears nothing from another while something happens to that one.
//!
//! How: a ping every 20 ms, or as often as the guest can, and when each answer came.
//!
//! Limits: 3 seconds, or as long as the pings take; one at a time in a guest.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::console::Console;
use super::uml::must;

/// Longest time for all pings, and between two looks.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Lets a guest send pings, which go on in its background once one was answered.
///
/// # Errors
/// None is.
pub fn start_pings(guest: &mut Console, address: &str) -> anyhow::Result<()> {
    let pings = format!("ping -n -D -O -i 0.02 -c 150 -W 1 {address}; echo over");
    let until_answered = "until grep -qs time= pings; do sleep 0.02; done";
    must(guest, &format!("rm -f pings; ({pings}) > pings 2>&1 & {until_answered}")).map(drop)
}

/// Waits until they are over; the longest silence in milliseconds. The log says between which
/// answers that was.
///
/// # Errors
/// They do not end, or say something else.
pub fn longest_silence_ms(guest: &mut Console) -> anyhow::Result<f64> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = must(guest, "cat pings")?;
        if text.contains("over") {
            return silence_ms(&text).with_context(|| text.clone());
        }
        ensure!(Instant::now() < deadline, "pings go on for more than {LIMIT:?}:\n{text}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The longest time in milliseconds between two answers in what ping prints with the time in front
/// of each, or between the last one and the last line: ping says so of packets that are not
/// answered (`-O`). What a program takes to start or to end is no silence.
pub fn silence_ms(text: &str) -> Option<f64> {
    let second = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.parse::<f64>().ok();
    let timed: Vec<_> = text.lines().filter_map(|line| Some((second(line)?, line))).collect();
    let is_answer = |(_, line): &&(f64, &str)| line.contains("time=");
    let last = timed.last().filter(|last| !is_answer(last));
    let signs = timed.iter().filter(is_answer).chain(last).collect::<Vec<_>>();
    let gap_ms = |pair: &[&(f64, &str)]| (pair[1].0 - pair[0].0) * 1e3;
    let longest = signs.windows(2).max_by(|one, other| gap_ms(one).total_cmp(&gap_ms(other)))?;
    println!("silent for {:.0} ms: {} .. {}", gap_ms(longest), longest[0].1, longest[1].1);
    Some(gap_ms(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_between_two_answers() {
        let begin = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n";
        let answer = |second: f64| {
            format!("[{second:.6}] 64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=1.25 ms\n")
        };
        let lost = "[100.750000] From 10.0.0.1 icmp_seq=12 Destination Host Unreachable\n";
        let open = "[102.000000] no answer yet for icmp_seq=13\n";
        let end = "2 packets transmitted, 2 received, 0% packet loss, time 3000ms\nover\n";
        let silence = |lines: &[&str]| silence_ms(&lines.concat()).map(f64::round);
        let [first, second] = [100.5, 101.75].map(answer);
        assert_eq!(silence(&[begin, &first, lost, &second, end]), Some(1250.0));
        assert_eq!(silence(&[begin, &second, open, end]), Some(250.0));
        assert_eq!(silence(&[begin, &first, lost, open, end]), Some(1500.0));
        assert_eq!(silence(&[begin, &first, lost, &second, open, end]), Some(1250.0));
        assert_eq!(silence(&[begin, lost, end]), None);
    }
}
