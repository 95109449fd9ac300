//! The order in which ports are visited.

use super::*;

#[test]
fn a_port_that_wakes_up_again_and_again_does_not_keep_another_from_its_visit() {
    let mut bench = Bench::new(2);
    bench.introduce();
    for turn in 1..=3 {
        for port in [0, 1] {
            bench.send(port, &frame(mac(1 - port), mac(port), 1), 1);
        }
        bench.worker.visit_ready();
        bench.guests.iter_mut().for_each(|guest| _ = guest.receive());
        let received: Vec<usize> = bench.guests.iter().map(|guest| guest.received.len()).collect();
        assert_eq!(received, [turn, turn]);
    }
}
