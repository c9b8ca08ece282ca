//! Peers that send a goodbye over one connection while another one just ends (S31).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_rpc::ReferenceState;

use super::*;

/// A callee that refuses all links once it is leaving.
struct LeavingCallee {
    is_leaving: AtomicBool,
    refused: Sender<()>,
    links: Mutex<Vec<Arc<dyn Link>>>,
}

impl Host for LeavingCallee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        if self.is_leaving.load(SeqCst) {
            let _ = self.refused.send(());
            return Err("worker `w1` has shut down".into());
        }
        Ok(Welcome {
            digest: 1,
            functions: Some(Arc::new(Catalogue::new([(
                "foreign::name",
                |_: &mut Layouts| None,
            )]))),
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(callees::ReplyFour(channel().0))
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        self.links.lock().unwrap().push(link);
    }
}

#[test]
fn a_goodbye_is_the_reason_although_another_connection_ended_before() {
    let (refused, attempts) = channel();
    let callee = Arc::new(LeavingCallee {
        is_leaving: AtomicBool::new(false),
        refused,
        links: Mutex::default(),
    });
    let host: Weak<LeavingCallee> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    let half = HalfWorld::new(vec![listener.address().clone()]);
    let value = half.world.remote("w1", name, ()).unwrap();
    let caller = half.dial(half.hello()).unwrap();

    // The link for calls to `w1` ends, and attempts to reconnect are refused.
    callee.is_leaving.store(true, SeqCst);
    drop(std::mem::take(&mut *callee.links.lock().unwrap()));
    for _ in 0..3 {
        attempts.recv_timeout(LIMIT).unwrap();
    }
    let lost = |state| half.world.references().iter().all(|info| info.state == state);
    // If the end of the link alone were a loss, `w1` would count as lost now.
    let until = Instant::now() + Duration::from_millis(300);
    while !lost(ReferenceState::Lost) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    caller.link.close("worker `w1` has left");

    while !lost(ReferenceState::Lost) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = value.to_here().unwrap_err();
    assert!(matches!(error, Error::OwnerLost { .. }), "{error:?}");
    let end = "was lost with its owner, worker `w1`: worker `w1` has left";
    assert!(error.to_string().ends_with(end), "{error}");
}
