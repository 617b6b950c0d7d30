use super::*;
use alloc::string::ToString;
use core::net::Ipv4Addr;
use std::vec;

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A server that says what the test has it say.
#[derive(Default)]
struct Script {
    opened: Vec<Request>,
    closed: Vec<Job>,
    given: Vec<usize>,
    news: VecDeque<News>,
    /// Pieces of the body for memory that is given.
    body: VecDeque<usize>,
    full: bool,
}

impl Exchanges for Script {
    fn open(&mut self, request: Request) -> Option<Job> {
        self.opened.push(request);
        (!self.full).then_some(self.opened.len() as Job)
    }

    fn news(&mut self, exchange: Job) -> Option<News> {
        assert_eq!(exchange, self.opened.len() as Job);
        self.news.pop_front()
    }

    fn give(&mut self, exchange: Job, memory: Memory) {
        assert_eq!(exchange, self.opened.len() as Job);
        self.given.push(memory.len());
        if let Some(len) = self.body.pop_front() {
            self.news.push_back(News::Body(len.min(memory.len())));
        }
    }

    fn close(&mut self, exchange: Job) {
        self.closed.push(exchange);
    }
}

fn config() -> Config {
    Config {
        version: 1,
        timeout: 5000,
        default_address: true,
        address: Ipv4Addr::UNSPECIFIED.into(),
        subnet: [0; 4],
        port: 0,
    }
}

fn get(url: &str) -> Asked<'_> {
    Asked {
        method: 0,
        url,
        fields: &[],
        body: &[],
    }
}

const URL: &str = "http://10.0.0.2:8080/a?b";

fn head(status: u16) -> News {
    News::Head(ResponseHead {
        status,
        fields: vec![("A".to_string(), "b".to_string())],
    })
}

fn room(len: usize) -> Option<Memory> {
    Some(vec![0; len].into())
}

/// An instance that has asked by token 1.
fn asking() -> (Http, Script) {
    let (mut http, mut script) = (Http::default(), Script::default());
    assert_eq!(http.configure(Some(config()), &[], &mut script), Ok(vec![]));
    assert_eq!(http.request(1, &get(URL), &mut script), Ok(()));
    (http, script)
}

/// The same with a head.
fn answered(status: u16) -> (Http, Script) {
    let (mut http, mut script) = asking();
    script.news.push_back(head(status));
    assert_eq!(verdicts(&mut http, &mut script), [(1, Verdict::Success, 0)]);
    (http, script)
}

fn verdicts(http: &mut Http, script: &mut Script) -> Vec<(Token, Verdict, usize)> {
    summary(http.advance(script))
}

fn summary(answers: Vec<Answer>) -> Vec<(Token, Verdict, usize)> {
    let len = |answer: &Answer| answer.response.as_ref().map_or(0, |one| one.len);
    answers
        .iter()
        .map(|answer| (answer.token, answer.verdict, len(answer)))
        .collect()
}

#[test]
fn nothing_goes_without_a_configuration() {
    let (mut http, mut script) = (Http::default(), Script::default());
    let refused = Err(Refusal::NotStarted);
    assert_eq!(http.mode(), Err(Refusal::NotStarted));
    assert_eq!(http.request(1, &get(URL), &mut script), refused);
    assert_eq!(http.response(1, true, None), refused);
    assert_eq!(http.cancel(None, &mut script), Err(Refusal::NotStarted));
    assert!(script.opened.is_empty());
}

#[test]
fn a_large_body_that_is_on_its_way_is_much_to_wait_for() {
    let (mut http, mut script) = answered(200);
    http.response(2, true, room(MUCH)).unwrap();
    assert!(!http.waits_for_much(), "nobody has its memory yet");
    assert!(verdicts(&mut http, &mut script).is_empty());
    assert!(http.waits_for_much());
    script.news.push_back(News::Body(MUCH));
    assert_eq!(
        verdicts(&mut http, &mut script),
        [(2, Verdict::Success, MUCH)]
    );
    assert!(!http.waits_for_much());
    http.response(3, false, room(MUCH - 1)).unwrap();
    assert!(verdicts(&mut http, &mut script).is_empty());
    assert!(!http.waits_for_much());
}

#[test]
fn a_configuration_is_kept_until_it_is_taken_back() {
    let (mut http, mut script) = (Http::default(), Script::default());
    let mut set =
        |http: &mut Http, config| http.configure(config, &[OURS], &mut script).map(|_| ());
    let other = Config {
        default_address: false,
        address: Ipv4Addr::new(10, 0, 0, 9).into(),
        ..config()
    };
    let ours = Config {
        address: OURS,
        ..other
    };
    let newer = Config {
        version: 2,
        ..config()
    };
    assert_eq!(set(&mut http, Some(other)), Err(Refusal::InvalidParameter));
    assert_eq!(set(&mut http, Some(newer)), Err(Refusal::Unsupported));
    assert_eq!(set(&mut http, Some(ours)), Ok(()));
    assert_eq!(http.mode(), Ok(ours));
    assert_eq!(set(&mut http, Some(ours)), Err(Refusal::AlreadyStarted));
    assert_eq!(set(&mut http, None), Ok(()));
    assert_eq!(http.mode(), Err(Refusal::NotStarted));
}

#[test]
fn a_request_is_written_as_it_was_asked_for() {
    let asked = Asked {
        method: 1,
        url: URL,
        fields: &[("Accept", "*/*"), ("X-a", "b c")],
        body: b"body",
    };
    let request = asked.request(false).unwrap();
    let text = "POST /a?b HTTP/1.1\r\nHost: 10.0.0.2:8080\r\nAccept: */*\r\nX-a: b c\r\n\
                Content-Length: 4\r\n\r\nbody";
    assert_eq!(core::str::from_utf8(&request.bytes), Ok(text));
    let own = Asked {
        method: 5,
        fields: &[("host", "h"), ("content-length", "0")],
        url: "http://[fd00::1]/",
        ..asked
    };
    let text = "HEAD / HTTP/1.0\r\nhost: h\r\ncontent-length: 0\r\n\r\nbody";
    let request = own.request(true).unwrap();
    assert_eq!(core::str::from_utf8(&request.bytes), Ok(text));
    assert_eq!(request.method, "HEAD");
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let refusal = |asked: Asked<'_>| asked.request(false).err();
    let other = |method| Asked { method, ..get(URL) };
    for method in [4, 9, -1] {
        assert_eq!(refusal(other(method)), Some(Refusal::Unsupported));
    }
    for url in ["https://h/", "tftp://h/a", "ftp://h/a"] {
        assert_eq!(refusal(get(url)), Some(Refusal::Unsupported));
    }
    for url in ["", "/a", "http://", "http://h:0/"] {
        assert_eq!(refusal(get(url)), Some(Refusal::InvalidParameter));
    }
    for field in [("a b", "c"), ("", "c"), ("a", "b\r\nc: d"), ("a:", "b")] {
        let asked = Asked {
            fields: &[field],
            ..get(URL)
        };
        assert_eq!(refusal(asked), Some(Refusal::InvalidParameter), "{field:?}");
    }
}

#[test]
fn a_request_is_answered_when_the_head_is_there() {
    let (mut http, mut script) = asking();
    assert_eq!(verdicts(&mut http, &mut script), []);
    assert!(http.waits());
    let denied = Err(Refusal::AccessDenied);
    assert_eq!(http.request(1, &get(URL), &mut script), denied);
    assert_eq!(http.request(2, &get(URL), &mut script), denied);
    assert_eq!(http.response(1, true, None), denied);
    script.news.push_back(head(200));
    assert_eq!(verdicts(&mut http, &mut script), [(1, Verdict::Success, 0)]);
    assert!(!http.waits());
    assert_eq!(verdicts(&mut http, &mut script), []);
    assert_eq!(script.opened.len(), 1);
}

#[test]
fn a_head_alone_then_all_of_the_body_at_once() {
    let (mut http, mut script) = answered(200);
    http.response(2, true, None).unwrap();
    let answers = http.advance(&mut script);
    let response = answers[0].response.as_ref().unwrap();
    assert_eq!(response.status, Some(200));
    assert_eq!(response.fields.as_ref().map(Vec::len), Some(1));
    script.body.push_back(1000);
    http.response(3, false, room(1000)).unwrap();
    assert_eq!(
        verdicts(&mut http, &mut script),
        [(3, Verdict::Success, 1000)]
    );
    script.news.push_back(News::Ended(Ok(())));
    // Behind the end.
    http.response(4, false, room(10)).unwrap();
    assert_eq!(verdicts(&mut http, &mut script), [(4, Verdict::Success, 0)]);
    assert_eq!(script.given, [1000]);
}

#[test]
fn head_and_body_in_one_response_then_pieces() {
    let (mut http, mut script) = answered(206);
    script.body.extend([100, 60]);
    http.response(2, true, room(100)).unwrap();
    http.response(3, false, room(100)).unwrap();
    assert_eq!(http.response(3, false, None), Err(Refusal::AccessDenied));
    let answers = http.advance(&mut script);
    let fields = |index: usize| answers[index].response.as_ref().unwrap().fields.is_some();
    assert_eq!((fields(0), fields(1)), (true, false));
    let wanted = [(2, Verdict::Success, 100), (3, Verdict::Success, 60)];
    assert_eq!(summary(answers), wanted);
}

#[test]
fn a_response_waits_for_its_body() {
    let (mut http, mut script) = answered(200);
    http.response(2, true, room(100)).unwrap();
    assert_eq!(verdicts(&mut http, &mut script), []);
    assert_eq!(verdicts(&mut http, &mut script), []);
    assert_eq!(script.given, [100]);
    script.news.extend([News::Body(7), News::Ended(Ok(()))]);
    assert_eq!(verdicts(&mut http, &mut script), [(2, Verdict::Success, 7)]);
}

#[test]
fn without_a_request_there_is_no_response_and_no_body_before_the_head() {
    let (mut http, mut script) = (Http::default(), Script::default());
    http.configure(Some(config()), &[], &mut script).unwrap();
    assert_eq!(http.response(2, true, None), Err(Refusal::AccessDenied));
    let (mut http, _) = answered(200);
    let refused = Err(Refusal::InvalidParameter);
    assert_eq!(http.response(2, false, room(5)), refused);
}

#[test]
fn errors_of_the_server_come_with_its_status() {
    let (mut http, mut script) = answered(404);
    script.body.extend([3, 3]);
    http.response(2, true, room(3)).unwrap();
    http.response(3, false, room(3)).unwrap();
    let answers = http.advance(&mut script);
    assert_eq!(answers[0].response.as_ref().unwrap().status, Some(404));
    let wanted = [(2, Verdict::HttpError, 3), (3, Verdict::Success, 3)];
    assert_eq!(summary(answers), wanted);
}

#[test]
fn what_goes_wrong_is_told_to_who_waits() {
    let ends = [
        Verdict::ConnectionFin,
        Verdict::Timeout,
        Verdict::Unreachable,
    ];
    for end in ends {
        // Before the head.
        let (mut http, mut script) = asking();
        http.response(2, true, room(5)).unwrap();
        script.news.push_back(News::Ended(Err(end)));
        assert_eq!(verdicts(&mut http, &mut script), [(1, end, 0), (2, end, 0)]);
        assert!(script.given.is_empty());
        // In the body: what came first is given first.
        let (mut http, mut script) = answered(200);
        http.response(2, true, room(5)).unwrap();
        http.response(3, false, room(5)).unwrap();
        assert_eq!(verdicts(&mut http, &mut script), []);
        script.news.extend([News::Body(2), News::Ended(Err(end))]);
        let wanted = [(2, Verdict::Success, 2), (3, end, 0)];
        assert_eq!(verdicts(&mut http, &mut script), wanted);
    }
}

#[test]
fn a_new_request_ends_the_response_that_nobody_wants() {
    let (mut http, mut script) = answered(200);
    assert_eq!(http.request(2, &get(URL), &mut script), Ok(()));
    assert_eq!((script.closed, script.opened.len()), (vec![1], 2));
    let (mut http, mut script) = answered(200);
    http.response(2, true, room(5)).unwrap();
    let denied = Err(Refusal::AccessDenied);
    assert_eq!(http.request(3, &get(URL), &mut script), denied);
    assert_eq!(script.closed, []);
}

#[test]
fn no_room_is_told_at_once() {
    let (mut http, mut script) = (Http::default(), Script::default());
    http.configure(Some(config()), &[], &mut script).unwrap();
    script.full = true;
    let refused = Err(Refusal::OutOfResources);
    assert_eq!(http.request(1, &get(URL), &mut script), refused);
    assert!(!http.waits());
    let (mut http, _) = answered(200);
    for token in 0..MOST_WAITING {
        http.response(2 + token, true, None).unwrap();
    }
    assert_eq!(http.response(999, true, None), refused);
}

#[test]
fn cancelled_tokens_are_aborted_and_their_memory_is_nobodys() {
    use Verdict::Aborted;
    let (mut http, mut script) = answered(200);
    for token in 2..5 {
        http.response(token, true, room(5)).unwrap();
    }
    assert_eq!(http.cancel(Some(9), &mut script), Err(Refusal::NotFound));
    let one = http.cancel(Some(3), &mut script).unwrap();
    assert_eq!(summary(one), [(3, Aborted, 0)]);
    assert_eq!(
        (verdicts(&mut http, &mut script), &script.given[..]),
        (vec![], &[5][..])
    );
    assert_eq!(script.closed, []);
    // The one that has given its memory: the rest cannot come either.
    let all = http.cancel(Some(2), &mut script).unwrap();
    assert_eq!(summary(all), [(2, Aborted, 0), (4, Aborted, 0)]);
    assert_eq!((script.closed, http.waits()), (vec![1], false));
}

#[test]
fn cancelling_all_resetting_and_cancelling_the_request_end_the_exchange() {
    type ExchangeEnd = fn(&mut Http, &mut Script) -> Vec<Answer>;
    let ends: [ExchangeEnd; 3] = [
        |http, script| http.cancel(None, script).unwrap(),
        |http, script| http.cancel(Some(1), script).unwrap(),
        |http, script| http.configure(None, &[], script).unwrap(),
    ];
    for end in ends {
        let (mut http, mut script) = asking();
        http.response(2, true, room(5)).unwrap();
        let answers = summary(end(&mut http, &mut script));
        let wanted = [(1, Verdict::Aborted, 0), (2, Verdict::Aborted, 0)];
        assert_eq!(answers, wanted);
        assert_eq!((&script.closed[..], http.waits()), (&[1][..], false));
        script.news.push_back(head(200));
        assert_eq!(verdicts(&mut http, &mut script), []);
    }
}

#[test]
fn problems_have_the_names_of_the_specification() {
    use Verdict as V;
    let reason = || "why".to_string();
    let host = || "h".to_string();
    for (problem, verdict) in [
        (Problem::Connect(NetError::Refused), V::ConnectionRefused),
        (Problem::Connect(NetError::TimedOut), V::Timeout),
        (Problem::Connect(NetError::Unreachable), V::Unreachable),
        (Problem::Connection(NetError::Reset), V::ConnectionReset),
        (Problem::Silent { seconds: 1 }, V::Timeout),
        (Problem::NoAnswer, V::ConnectionFin),
        (Problem::BrokeOff { received: 1 }, V::ConnectionFin),
        (
            Problem::Resolve {
                host: host(),
                reason: reason(),
                passing: false,
            },
            V::Unreachable,
        ),
        (Problem::Range, V::DeviceError),
    ] {
        assert_eq!(Verdict::from(&problem), verdict, "{problem}");
    }
}

/// EFI_HTTP_METHOD (UEFI 2.10, section 29.6); RFC 9110, section 7.2: Host without the scheme's own port.
#[test]
fn methods_have_the_numbers_of_the_specification() {
    let methods = [
        (0, "GET"),
        (1, "POST"),
        (2, "PATCH"),
        (3, "OPTIONS"),
        (5, "HEAD"),
        (6, "PUT"),
        (7, "DELETE"),
        (8, "TRACE"),
    ];
    for (method, name) in methods {
        let asked = Asked {
            method,
            ..get("http://h/")
        };
        let request = asked.request(false).unwrap();
        assert_eq!(request.method, name);
        let text = std::format!("{name} / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(request.bytes, text.as_bytes());
    }
}

/// RFC 9112, section 6.2: no Content-Length beside a Transfer-Encoding.
#[test]
fn a_body_in_chunks_has_no_length() {
    let asked = Asked {
        method: 1,
        fields: &[("transfer-encoding", "chunked")],
        body: b"1\r\nx\r\n0\r\n\r\n",
        ..get(URL)
    };
    let text = String::from_utf8(asked.request(false).unwrap().bytes).unwrap();
    assert!(!text.contains("Content-Length"), "{text}");
}

/// As EDK II has it. ESXi's loader looks for a redirect only where it is told of an error.
#[test]
fn statuses_from_300_on_are_errors() {
    for (status, verdict) in [
        (200, Verdict::Success),
        (299, Verdict::Success),
        (300, Verdict::HttpError),
        (302, Verdict::HttpError),
        (404, Verdict::HttpError),
        (503, Verdict::HttpError),
    ] {
        let (mut http, mut script) = answered(status);
        http.response(2, true, None).unwrap();
        assert_eq!(verdicts(&mut http, &mut script), [(2, verdict, 0)]);
    }
}

/// Who wants the head alone gets it, whatever becomes of the body. That is told by one token: there are loaders that look at no token's status,
/// and ask for the rest until they are refused.
#[test]
fn a_head_is_there_though_its_body_breaks_off() {
    let (mut http, mut script) = answered(200);
    http.response(2, true, None).unwrap();
    let end = Verdict::ConnectionFin;
    script.news.push_back(News::Ended(Err(end)));
    assert_eq!(verdicts(&mut http, &mut script), [(2, Verdict::Success, 0)]);
    http.response(3, false, room(5)).unwrap();
    assert_eq!(verdicts(&mut http, &mut script), [(3, end, 0)]);
    let denied = Err(Refusal::AccessDenied);
    assert_eq!(http.response(4, false, room(5)), denied);
    assert_eq!(http.response(4, true, None), denied);
    assert_eq!(http.request(4, &get(URL), &mut script), Ok(()));
    assert_eq!(http.response(5, true, None), Ok(()));
}
