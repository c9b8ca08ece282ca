//! Peers that leave, and say so over one connection while another only ends (S31).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_rpc::ReferenceState;

use super::*;

/// A callee that turns everybody away once it is leaving.
struct Leaver {
    is_leaving: AtomicBool,
    turned_away: Sender<()>,
    links: Mutex<Vec<Arc<dyn Link>>>,
}

impl Host for Leaver {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        if self.is_leaving.load(SeqCst) {
            let _ = self.turned_away.send(());
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
        Arc::new(callees::AlwaysFour(channel().0))
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        self.links.lock().unwrap().push(link);
    }
}

#[test]
fn a_goodbye_is_the_reason_when_another_connection_ends_before_it() {
    let (turned_away, attempts) = channel();
    let leaver = Arc::new(Leaver {
        is_leaving: AtomicBool::new(false),
        turned_away,
        links: Mutex::default(),
    });
    let host: Weak<Leaver> = Arc::downgrade(&leaver);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    let half = Half::new(vec![listener.address().clone()]);
    let value = half.world.remote("w1", name, ()).unwrap();
    let caller = half.dial(half.hello()).unwrap();

    // The connection for calls to it ends, and a search for it finds no listener.
    leaver.is_leaving.store(true, SeqCst);
    drop(std::mem::take(&mut *leaver.links.lock().unwrap()));
    for _ in 0..3 {
        attempts.recv_timeout(SOON).unwrap();
    }
    let lost = |state| half.world.references().iter().all(|info| info.state == state);
    // Without the goodbye it would count as gone now.
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
