//! A program that says what it likes on any of its channels, and waits for nothing.

use super::program::Files;
use skink_channel::{
    Consumer, ConsumerDescriptors, Doorbell, DoorbellDescriptors, Producer, ProducerDescriptors,
    QueueGeometry,
};
use skink_memory::SocketTable;
use skink_messages::SocketError;
use skink_sockets::{
    Answer, NOTICES, Notice, NoticeMessage, REQUESTS, Request, RequestBody, RequestMessage, Routes,
    SIDE_BELLS, ServedBy, SocketCall,
};
use std::os::fd::OwnedFd;

struct Channel {
    requests: Producer<RequestMessage>,
    notices: Consumer<NoticeMessage>,
    stack: Doorbell,
}

pub struct Raw {
    pub number: u32,
    pub secret: u64,
    pub routes: Routes,
    pub tcp: SocketTable,
    pub udp: SocketTable,
    channels: Vec<Channel>,
    /// All that it was told, with the channel.
    pub heard: Vec<(usize, Notice)>,
    serial: u32,
    /// Kept open.
    _sleeper: Vec<OwnedFd>,
}

impl Raw {
    pub fn new(files: Files) -> Raw {
        let mut all = files.channels;
        let mut rest = all.split_off(2);
        all.extend(rest.drain(rest.len() - SIDE_BELLS..));
        let mut rest = rest.into_iter();
        let mut channels = Vec::new();
        while let Some(own) = rest.next() {
            let mut next = || rest.next().expect("six of each");
            let theirs = next();
            let requests = ProducerDescriptors { own, theirs };
            let (own, theirs) = (next(), next());
            let notices = ConsumerDescriptors { own, theirs };
            let (page, bell) = (next(), next());
            let requests_size =
                QueueGeometry::new(QueueGeometry::slot_bytes_for::<RequestMessage>(), REQUESTS);
            let notices_size =
                QueueGeometry::new(QueueGeometry::slot_bytes_for::<NoticeMessage>(), NOTICES);
            channels.push(Channel {
                requests: Producer::attach(requests, requests_size.expect("sizes")).expect("one"),
                notices: Consumer::attach(notices, notices_size.expect("sizes")).expect("one"),
                stack: Doorbell::attach(DoorbellDescriptors { page, bell }).expect("a bell"),
            });
        }
        Raw {
            number: files.number,
            secret: files.secret,
            routes: files.routes,
            tcp: files.tcp,
            udp: files.udp,
            channels,
            heard: Vec::new(),
            serial: 0,
            _sleeper: all,
        }
    }

    /// Says something on the channel of this part, whoever it is for.
    pub fn say(&mut self, to: ServedBy, serial: u32, body: RequestBody) {
        let channel = &mut self.channels[self.routes.channel(to)];
        let message = RequestMessage::from(&Request { serial, body });
        channel.requests.write(&message).expect("room");
        channel.requests.publish();
        channel.stack.ring();
    }

    /// Says something to whom it is for.
    pub fn tell(&mut self, body: RequestBody) {
        self.say(body.server(), 0, body);
    }

    /// Calls, and answers the serial number.
    pub fn call(&mut self, call: SocketCall) -> u32 {
        self.serial += 1;
        let serial = match call.is_answered() {
            true => self.serial,
            false => 0,
        };
        self.say(ServedBy::Syscall, serial, RequestBody::Call(call));
        serial
    }

    /// Takes in what was said.
    pub fn hear(&mut self) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            while let Some(message) = channel.notices.peek().expect("a good queue") {
                let notice = message.decode().expect("sense");
                self.heard.push((index, notice));
            }
            if channel.notices.release() > 0 && channel.notices.made_room() {
                channel.stack.ring();
            }
        }
    }

    /// Every answer to this call.
    pub fn answers(&mut self, serial: u32) -> Vec<Result<Answer, SocketError>> {
        self.hear();
        let heard = self.heard.iter();
        let answers = heard.filter_map(|(_, notice)| match notice {
            Notice::Answer(to, answer) if *to == serial => Some(*answer),
            Notice::Answer(..) | Notice::Event(..) | Notice::Offered { .. } => None,
        });
        answers.collect()
    }
}
