//! What the card itself says, marked by its header.

use super::*;
use wireboot_wire::card::MARK;
use wireboot_wire::card::hello::{CHUNKS, DATAGRAMS, Hello, Kind, PLACEMENT};

fn marked() -> UnitHeader {
    UnitHeader {
        gso_type: MARK,
        ..plain()
    }
}

/// A driver that has asked, and its question.
fn asked(config: ModelConfig) -> (Model, VirtioNet<ModelPci>, Hello) {
    let (model, mut nic) = start(config);
    nic.ask_card(0x1234_5678_9abc_def0).unwrap();
    let sent = model.collect();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].flags, sent[0].gso_type), (0, 0));
    let question = Hello::parse(&sent[0].frame).unwrap();
    assert_eq!(question.kind, Kind::Question);
    assert_eq!(question.source, nic.properties().mac);
    assert_eq!(question.token, 0x1234_5678_9abc_def0);
    (model, nic, question)
}

fn answer(question: Hello) -> Hello {
    Hello {
        kind: Kind::Answer,
        ..question
    }
}

#[test]
fn an_answer_is_heard_and_not_lent() {
    let (model, mut nic, question) = asked(ModelConfig::default());
    assert_eq!(question.features, DATAGRAMS | CHUNKS);
    assert_eq!(nic.agreed(), None);
    let does = Hello {
        // More than the driver knows.
        features: DATAGRAMS | PLACEMENT | 1 << 31,
        ..answer(question)
    };
    assert!(model.deliver(marked(), &does.emit()));
    assert!(model.deliver(plain(), &pattern(60)));
    let units = receive(&mut nic, 64).unwrap();
    assert_eq!((units.len(), &units[0].bytes), (1, &pattern(60)));
    assert_eq!(nic.agreed().unwrap().features, DATAGRAMS);
    let counters = nic.counters();
    assert_eq!((counters.receive_units, counters.receive_dropped), (1, 0));
    // One answer to one question.
    assert!(
        model.deliver(
            marked(),
            &Hello {
                features: 0,
                ..does
            }
            .emit()
        )
    );
    assert!(receive(&mut nic, 64).unwrap().is_empty());
    assert_eq!(nic.agreed().unwrap().features, DATAGRAMS);
    assert_eq!(nic.counters().receive_dropped, 1);
    // Nothing is agreed on until the next one is answered.
    nic.ask_card(7).unwrap();
    assert_eq!(nic.agreed(), None);
}

#[test]
fn nobody_else_is_believed() {
    let (model, mut nic, question) = asked(ModelConfig::default());
    let right = answer(question);
    let others = [
        question,
        Hello {
            token: question.token ^ 1,
            ..right
        },
    ];
    for hello in others {
        assert!(model.deliver(marked(), &hello.emit()));
    }
    assert!(model.deliver(marked(), &right.emit()[..59]));
    assert!(receive(&mut nic, 64).unwrap().is_empty());
    assert_eq!(nic.counters().receive_dropped, 3);
    // From a wire, even the right one is a frame like others.
    assert!(model.deliver(plain(), &right.emit()));
    assert_eq!(receive(&mut nic, 64).unwrap()[0].bytes, right.emit());
    assert_eq!(nic.agreed(), None);
}

#[test]
fn without_a_question_there_is_no_answer() {
    let (.., question) = asked(ModelConfig::default());
    let (model, mut nic) = start(ModelConfig::default());
    assert!(model.deliver(marked(), &answer(question).emit()));
    assert!(receive(&mut nic, 64).unwrap().is_empty());
    assert_eq!((nic.agreed(), nic.counters().receive_dropped), (None, 1));
    assert!(model.collect().is_empty());
}

#[test]
fn what_the_device_cannot_do_is_not_understood() {
    for features in [feature::GUEST_UFO, feature::MRG_RXBUF, feature::GUEST_CSUM] {
        let (.., question) = asked(without(features));
        assert_eq!(question.features, CHUNKS);
    }
}
