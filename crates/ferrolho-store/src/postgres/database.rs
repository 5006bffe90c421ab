//! The calls of the functions in the database.

use std::sync::Arc;

use ferrolho_core::{Change, Live, Owner, Resource};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tracing::warn;

use super::clock::{Clock, MAX_OFF_MICROS, micros};
use super::columns::{Columns, principal};
use super::config::PostgresConfig;
use super::failure::Failure;
use super::link::{Door, Link, Parameters};
use super::rows::Answer;
use super::setup::EDITION;
use crate::ListQuery;
use crate::clock::Moment;

/// A database with its tables and functions in place.
pub(super) struct Database {
    /// Reads of one lock.
    finds: Link,
    /// Everything that may take longer: lists, the pulse.
    others: Link,
    pub(super) clock: Clock,
    sql: Statements,
}

struct Statements {
    apply: String,
    find: String,
    list: String,
    pulse: String,
    step: String,
    count: String,
}

/// How the store is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    pub(super) epoch: u64,
    pub(super) commits: u64,
    pub(super) era: i64,
    pub(super) clock: i64,
    pub(super) skew: i64,
    /// How many microseconds from now the next lock ends; negative when a dead one is there.
    pub(super) next_end: Option<i64>,
}

impl Pulse {
    fn read(rows: &[Row]) -> Result<Self, Failure> {
        let odd = |error: tokio_postgres::Error| Failure::Away(error.to_string());
        let row = rows.first().ok_or_else(|| Failure::Away("no pulse".into()))?;
        let number = |name: &str| row.try_get::<_, i64>(name).map_err(odd);
        Ok(Self {
            epoch: number("epoch")?.unsigned_abs(),
            commits: number("commits")?.unsigned_abs(),
            era: number("era")?,
            clock: number("clock")?,
            skew: number("skew")?,
            next_end: row.try_get("next_end").map_err(odd)?,
        })
    }
}

/// A call that changes nothing: it is made again when its session was lost.
async fn read(
    link: &Link,
    sql: &str,
    parameters: Parameters<'_>,
    until: Instant,
) -> Result<Vec<Row>, Failure> {
    match link.call(sql, parameters, until).await {
        Err(Failure::Unknown(_) | Failure::Again(_)) if Instant::now() < until => {
            link.call(sql, parameters, until).await
        }
        answer => answer,
    }
}

impl Database {
    /// Takes the first look.
    pub(super) async fn new(
        config: &PostgresConfig,
        door: &Door,
        until: Instant,
    ) -> Result<(Self, Pulse), Failure> {
        let call = |name: &str, count: usize| {
            let places: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
            format!(
                "SELECT * FROM {}.ferrolho_{name}_{}({})",
                config.schema,
                *EDITION,
                places.join(", ")
            )
        };
        let sql = Statements {
            apply: call("apply", 19),
            find: call("find", 1),
            list: call("list", 7),
            pulse: call("pulse", 0),
            step: call("step", 3),
            count: call("count", 0),
        };
        let (finds, others) = (Link::new(door.clone()), Link::new(door.clone()));
        finds.session(until).await?;
        let pulse = Pulse::read(&read(&others, &sql.pulse, &[], until).await?)?;
        let database = Self {
            finds,
            others,
            clock: Clock::new(pulse.era, pulse.clock),
            sql,
        };
        Ok((database, pulse))
    }

    /// Lets go of the connections.
    pub(super) fn close(&self) {
        self.finds.close();
        self.others.close();
    }

    pub(super) async fn find(&self, resource: &Resource, until: Instant) -> Result<Option<Live>, Failure> {
        let name = resource.as_str();
        let parameters: Parameters<'_> = &[(&name, Type::TEXT)];
        let answer = self.look(&self.finds, &self.sql.find, parameters, until).await?;
        Ok(answer.locks().pop())
    }

    /// One lock more than the query wants, if there are so many.
    pub(super) async fn list(&self, query: &ListQuery, until: Instant) -> Result<Vec<Live>, Failure> {
        let below = end_of(&query.prefix);
        let after = query.after.as_ref().map(Resource::as_str);
        let holder = query.holder.as_ref();
        let owner = holder.map(|holder| &holder.owner).or(query.owner.as_ref());
        let owner = owner.map(Owner::as_str);
        let principal = holder.and_then(principal);
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1);
        let parameters: Parameters<'_> = &[
            (&query.prefix, Type::TEXT),
            (&below, Type::TEXT),
            (&after, Type::TEXT),
            (&owner, Type::TEXT),
            (&holder.is_none(), Type::BOOL),
            (&principal, Type::TEXT),
            (&limit, Type::INT8),
        ];
        let answer = self.look(&self.others, &self.sql.list, parameters, until).await?;
        // An owner and a holder that contradict each other are nobody.
        Ok(answer
            .locks()
            .into_iter()
            .filter(|live| query.wants(&live.lock))
            .collect())
    }

    /// A read of locks, which the clock must be right for.
    async fn look(
        &self,
        link: &Link,
        sql: &str,
        parameters: Parameters<'_>,
        until: Instant,
    ) -> Result<Answer, Failure> {
        loop {
            let sent = Moment::now();
            let answer = Answer::read(&read(link, sql, parameters, until).await?)?;
            if self.clock.fits(answer.era, answer.clock, sent) {
                return Ok(answer);
            }
            self.put_right(answer.era, answer.clock, sent, until).await?;
        }
    }

    /// How the store is now, by a clock that is right: also while nobody asks for locks, a step is noticed here.
    pub(super) async fn pulse(&self, until: Instant) -> Result<Pulse, Failure> {
        loop {
            let sent = Moment::now();
            let pulse = self.look_at_pulse(until).await?;
            if self.clock.fits(pulse.era, pulse.clock, sent) {
                return Ok(pulse);
            }
            self.put_right(pulse.era, pulse.clock, sent, until).await?;
        }
    }

    async fn look_at_pulse(&self, until: Instant) -> Result<Pulse, Failure> {
        Pulse::read(&read(&self.others, &self.sql.pulse, &[], until).await?)
    }

    /// How many locks live, nearly.
    pub(super) async fn count(&self, until: Instant) -> Result<Option<u64>, Failure> {
        let rows = read(&self.others, &self.sql.count, &[], until).await?;
        let counted: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
        Ok(counted.and_then(|counted| counted.try_into().ok()))
    }

    /// Notifies whoever listens on a channel.
    pub(super) async fn notify(&self, channel: &str, what: &str, until: Instant) -> Result<(), Failure> {
        let parameters: Parameters<'_> = &[(&channel, Type::TEXT), (&what, Type::TEXT)];
        let sql = "SELECT pg_notify($1, $2)";
        self.others.call(sql, parameters, until).await.map(drop)
    }

    /// The clock is not as it should be: somebody else has put it right already, or this call came late, or it was
    /// stepped, which is put right here.
    async fn put_right(&self, era: i64, seen: i64, sent: Moment, until: Instant) -> Result<(), Failure> {
        let sight = self.clock.sight();
        if Instant::now() >= until {
            return Err(Failure::Away("the database's clock is not as expected".into()));
        }
        if era == sight.era {
            let expected = sight.expected();
            let jump = seen - expected;
            // A call that lay around for long saw the clock before its answer came, and it was right then.
            if jump < 0 && -jump <= micros(sent.elapsed()) + MAX_OFF_MICROS {
                return Ok(());
            }
            warn!(
                jump_micros = jump,
                "the database's clock was stepped; locks keep their lives"
            );
            let parameters: Parameters<'_> =
                &[(&era, Type::INT8), (&expected, Type::INT8), (&jump, Type::INT8)];
            self.others.call(&self.sql.step, parameters, until).await?;
        }
        // If nothing was put right, the database's clock is what there is.
        let pulse = self.look_at_pulse(until).await?;
        self.clock.set(pulse.era, pulse.clock);
        Ok(())
    }

    /// Carries out groups of changes, each all or none, and clears at most so many dead locks. A resource occurs
    /// once. Nothing is done when the call comes late or the clock was stepped; then it is sent again.
    pub(super) async fn apply(
        &self,
        link: &Link,
        groups: &[Arc<[Change]>],
        clear: i32,
        until: Instant,
    ) -> Result<Vec<(usize, bool, Option<Live>)>, Failure> {
        let columns = Columns::of(groups);
        loop {
            let sight = self.clock.sight();
            let sent = Moment::now();
            let rows = columns.send(link, &self.sql.apply, sight, clear, until).await;
            let answer = match rows {
                Ok(rows) => Answer::read(&rows)?,
                Err(Failure::Again(_)) if Instant::now() < until => {
                    // A step of the clock in the middle of the call looks like this too.
                    self.pulse(until).await?;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if answer.is_in_time {
                // It was as this call expected.
                self.clock.fits(answer.era, answer.clock, sent);
                return Ok(answer.changes);
            }
            self.put_right(answer.era, answer.clock, sent, until).await?;
        }
    }
}

/// The first text that is above all that begin like this. Code points are in the order of their bytes.
fn end_of(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_of_a_prefix_is_above_all_that_begin_like_it_and_nothing_else() {
        assert_eq!(end_of(""), None);
        assert_eq!(end_of("a").as_deref(), Some("b"));
        assert_eq!(end_of("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end_of("\u{10ffff}"), None);
        assert_eq!(end_of("\u{d7ff}").as_deref(), Some("\u{e000}"));
    }
}
