//! Users of the client library: they know only what their guards believe.

use std::time::{Duration, Instant};

use ferrolho_client::{Client, Error, Guard, Hold, Lease, Loss, SetGuard};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tokio::time::sleep;

use super::{connect, some_hot_locks};
use crate::run::Run;
use crate::witness::{Certainty, Told};

pub(super) async fn live(run: &Run, number: usize, mut dice: StdRng) {
    let name = format!("guarded-{number}");
    let mut routes = run.routes.clone();
    routes.shuffle(&mut dice);
    let Some(client) = connect(run, &name, &routes) else {
        return;
    };
    let user = User { run, name, client };
    while !run.is_over() {
        user.round(&mut dice).await;
        sleep(Duration::from_millis(dice.random_range(5..80))).await;
    }
    user.client.settle().await;
}

struct User<'a> {
    run: &'a Run,
    name: String,
    client: Client,
}

impl User<'_> {
    async fn round(&self, dice: &mut StdRng) {
        let names = some_hot_locks(dice);
        let ttl = Duration::from_secs(dice.random_range(2..=6));
        let wait = Duration::from_secs(dice.random_range(0..=6));
        let sent = Instant::now();
        self.note(&format!("wants {names:?} for {ttl:?}, waits {wait:?}"));
        self.run.court.count("requests");
        let patience = Duration::from_millis(dice.random_range(1..1500));
        let hangs_up = dice.random_bool(0.05);
        let asking = async {
            match &names[..] {
                [name] => {
                    let guard = self.client.lock(name)?.ttl(ttl)?.wait(wait).acquire().await?;
                    let lease = guard.lease();
                    Ok((Held::One(guard), vec![lease]))
                }
                names => {
                    let names = names.iter().map(String::as_str);
                    let guard = self
                        .client
                        .lock_all(names)?
                        .ttl(ttl)?
                        .wait(wait)
                        .acquire()
                        .await?;
                    let leases = guard.leases().cloned().collect();
                    Ok((Held::Set(guard), leases))
                }
            }
        };
        let asked = if hangs_up {
            let Ok(asked) = tokio::time::timeout(patience, asking).await else {
                self.note("gave up");
                return self.run.court.count("hung up while waiting");
            };
            asked
        } else {
            asking.await
        };
        match asked {
            Ok((held, leases)) => self.work(held, &leases, sent, dice).await,
            Err(error) => {
                self.note(&format!("got nothing: {error}"));
                self.judge("acquire", &error);
            }
        }
    }

    async fn work(&self, held: Held, leases: &[Lease], sent: Instant, dice: &mut StdRng) {
        let court = &self.run.court;
        court.count("grants");
        court.count("grants to guards");
        if sent.elapsed() > Duration::from_millis(100) {
            court.count("grants after waiting");
        }
        for lease in leases {
            let resource = lease.resource();
            let told = Told {
                resource: resource.as_str(),
                client: &self.name,
                token: lease.fencing_token().get(),
                sent,
            };
            self.note(&format!("has {} with token {}", told.resource, told.token));
            self.run.witness.told(court, told, false);
            self.run
                .witness
                .enter(court, told, Certainty::Believed(lease.clone()));
        }
        let work = Duration::from_millis(if dice.random_bool(0.04) {
            dice.random_range(2000..8000)
        } else {
            dice.random_range(1..150)
        });
        let lost = tokio::time::timeout(work, held.lost()).await;
        for lease in leases {
            self.run
                .witness
                .leave(lease.resource().as_str(), lease.fencing_token().get());
        }
        if let Ok(loss) = lost {
            court.count("losses announced by guards");
            self.note(&format!("is told of its loss: {loss}"));
            if loss == Loss::Taken {
                court.accuse(&format!("LOST {} by its guard: {loss}", self.name));
            }
        }
        if dice.random_bool(0.1) {
            self.note("drops its guard");
            drop(held);
            return;
        }
        match held.release().await {
            Ok(()) => {
                self.note("has released");
                court.count("releases");
            }
            Err(error) => {
                self.note(&format!("released in vain: {error}"));
                self.judge("release", &error);
            }
        }
    }

    fn judge(&self, what: &str, error: &Error) {
        let court = &self.run.court;
        match error {
            Error::Held { .. } => court.count("refused"),
            Error::Unreachable(_) => court.count("no answer"),
            Error::Lost(Loss::NotRenewed) => court.count("losses seen at the end by guards"),
            Error::Lost(Loss::Taken) => court.count("releases answered as taken"),
            error => court.accuse(&format!("CLIENT {} {what}: {error}", self.name)),
        }
    }

    fn note(&self, what: &str) {
        self.run.court.note(&format!("{} {what}", self.name));
    }
}

/// What a user has in its hands.
enum Held {
    One(Guard),
    Set(SetGuard),
}

impl Held {
    async fn lost(&self) -> Loss {
        match self {
            Self::One(guard) => Hold::lost(guard).await,
            Self::Set(guard) => Hold::lost(guard).await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Set(guard) => guard.release().await,
        }
    }
}
