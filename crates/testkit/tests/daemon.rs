//! The whole program with user-space guests: what two guests exchange is verified byte by byte
//! under every combination of features and over many reconnects.
//!
//! Each test starts its own `ringway run`; see `RingwayProcess` for where the binary comes from.

use ringway_net::Features;
use ringway_testkit::frames::Mac;
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess, Rng};
use ringway_virtq::Format;

use ringway_testkit::beside::{FRAME_LEN_MAX, Outcome, accepting, attach_two, verify_exchange};

/// An MTU is offered only where one was configured.
const EVERYTHING_OFFERED: [(&str, &str); 2] = [("a", "mtu=1500"), ("b", "mtu=1500")];

fn detach_both(guests: [AnyUserGuest; 2]) -> Outcome {
    for guest in guests {
        guest.detach()?;
    }
    Ok(())
}

#[test]
fn guests_exchange_every_packet_in_every_combination_of_ring_features() -> Outcome {
    let ringway = RingwayProcess::start(&EVERYTHING_OFFERED)?;
    let choices = [
        Features::RING_PACKED,
        Features::MRG_RXBUF,
        Features::EVENT_IDX,
        Features::IN_ORDER,
        Features::INDIRECT_DESC,
    ];
    for bits in 0..1_u32 << choices.len() {
        let mut accept = Features::OFFERED;
        for (at, feature) in choices.into_iter().enumerate() {
            accept.set(feature, bits & (1 << at) != 0);
        }
        // The second guest has all features: formats and layouts meet in the middle.
        for peer in [accept, Features::OFFERED] {
            let several = GuestOptions { header_apart: true, rx_elements: 3, ..accepting(accept) };
            let mut guests = attach_two(&ringway, [&several, &accepting(peer)])?;
            assert_eq!(guests[0].negotiated().features.intersection(accept), accept);
            let packed = accept.contains(Features::RING_PACKED);
            assert_eq!(guests[0].format() == Format::Packed, packed);
            verify_exchange(&mut guests, 200, FRAME_LEN_MAX)
                .map_err(|error| format!("{accept}: {error}"))?;
            detach_both(guests)?;
        }
    }
    Ok(())
}

#[test]
fn every_offered_feature_is_right_when_negotiated_and_when_not() -> Outcome {
    let ringway = RingwayProcess::start(&EVERYTHING_OFFERED)?;
    for feature in Features::OFFERED.difference(Features::VERSION_1).iter() {
        let without = Features::OFFERED.difference(feature).drop_unmet();
        let only = with_needs(feature);
        for accept in [without, only] {
            let options = accepting(accept);
            let mut guests = attach_two(&ringway, [&options, &options])?;
            let negotiated = guests[0].negotiated().features;
            assert_eq!(negotiated.contains(feature), accept.contains(feature), "{feature}");
            verify_exchange(&mut guests, 100, FRAME_LEN_MAX)
                .map_err(|error| format!("{accept}: {error}"))?;
            detach_both(guests)?;
        }
    }
    Ok(())
}

/// A feature with the fewest others that it needs.
fn with_needs(feature: Features) -> Features {
    let enough = [
        Features::empty(),
        Features::CTRL_VQ,
        Features::CSUM,
        Features::GUEST_CSUM,
        Features::CSUM | Features::HOST_TSO4,
        Features::GUEST_CSUM | Features::GUEST_TSO4,
    ];
    let sets = enough.into_iter().map(|more| Features::VERSION_1 | feature | more);
    let mut right = sets.filter(|set| set.check_dependencies().is_ok());
    right.next().unwrap_or(Features::OFFERED)
}

#[test]
fn features_turned_off_on_the_command_line_are_not_offered() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", "packed=off,mrg_rxbuf=off"), ("b", "")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    assert!(!guests[0].negotiated().mergeable);
    assert_eq!(guests[0].format(), Format::Split);
    assert!(guests[1].negotiated().mergeable);
    assert_eq!(guests[1].format(), Format::Packed);
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)
}

#[test]
fn the_configuration_space_says_what_the_port_is() -> Outcome {
    let options = "mac=52:54:00:12:34:56,mtu=9000";
    let ringway = RingwayProcess::start(&[("a", options), ("b", "mtu=9000")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    let config = guests[0].config()?;
    assert_eq!(config.mac.0, [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    assert_eq!(config.mtu, 9000);
    assert!(config.link_up);
    assert_ne!(guests[1].config()?.mac, config.mac);
    verify_exchange(&mut guests, 500, 9014)
}

#[test]
fn control_commands_are_always_answered() -> Outcome {
    const CLASS_MAC: u8 = 1;
    const MAC_ADDR_SET: u8 = 1;
    let ringway = RingwayProcess::start(&[("a", "mtu=9000"), ("b", "mtu=9000")])?;
    for format in [Features::empty(), Features::RING_PACKED] {
        let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
        let options = accepting(accept);
        let mut guests = attach_two(&ringway, [&options, &options])?;
        let moved: Mac = [0x52, 0x54, 0, 1, 2, 3];
        assert_eq!(guests[0].command(CLASS_MAC, MAC_ADDR_SET, &moved)?, 0);
        // Not known, not offered, too short, too long: an error, but an answer.
        for (class, command, data) in [
            (0xee, 0, &[][..]),
            (4, 0, &[1, 0]),
            (CLASS_MAC, MAC_ADDR_SET, &[1]),
            (0, 0, &[7; 4000]),
        ] {
            assert_eq!(guests[0].command(class, command, data)?, 1, "{class} {command}");
        }
        verify_exchange(&mut guests, 50, FRAME_LEN_MAX)?;
        detach_both(guests)?;
    }
    Ok(())
}

#[test]
fn a_guest_may_reconnect_a_hundred_times() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let mut rng = Rng::from_environment("reconnect", 100);
    let mut stays = Some(AnyUserGuest::attach(&ringway.socket("b"), &GuestOptions::default())?);
    for round in 0..100 {
        let mut accept = Features::OFFERED;
        accept.set(Features::RING_PACKED, rng.one_in(2));
        accept.set(Features::MRG_RXBUF, rng.one_in(2));
        let comes = AnyUserGuest::attach(&ringway.socket("a"), &accepting(accept))?;
        let peer = stays.take().ok_or("the second guest is there")?;
        let mut guests = [comes, peer];
        verify_exchange(&mut guests, 20, FRAME_LEN_MAX)
            .map_err(|error| format!("round {round}: {error}"))?;
        let [goes, peer] = guests;
        stays = Some(peer);
        if rng.one_in(2) {
            goes.detach()?;
        } else {
            // As a guest that was killed: nothing is said.
            drop(goes);
        }
    }
    Ok(())
}
