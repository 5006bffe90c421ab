//! The answers to a batch, which reach all callers with one wake-up from the writer's thread.
//!
//! A wake-up from another thread costs the runtime a system call, one from its own threads only a place in a queue. So
//! the writer tells the first caller alone, and hands it the answers of the others to pass on.

use std::vec::IntoIter;

use super::Waiting;
use crate::{Outcome, StoreError};

/// What a caller gets to know.
pub(in crate::sqlite) type Told = Result<Outcome, StoreError>;

/// The answer to one attempt, and those to others of the same batch, who are told when this is dropped.
#[derive(Debug)]
pub(in crate::sqlite) struct Answer {
    pub(in crate::sqlite) told: Told,
    _others: Others,
}

/// Those who are told when this is dropped, even if that is because nobody took it.
#[derive(Debug, Default)]
struct Others(IntoIter<(Waiting, Told)>);

impl Drop for Others {
    fn drop(&mut self) {
        for (waiting, told) in self.0.by_ref() {
            tell(waiting, told, Self::default());
        }
    }
}

/// Tells everybody what has become of its attempt. A caller that is gone is passed over.
pub(super) fn tell_all(waiting: Vec<Waiting>, told: Vec<Told>) {
    let mut answers = waiting.into_iter().zip(told).collect::<Vec<_>>().into_iter();
    if let Some((first, told)) = answers.next() {
        tell(first, told, Others(answers));
    }
}

/// Tells everybody that its attempt was not carried out.
pub(super) fn refuse_all(waiting: Vec<Waiting>, error: &StoreError) {
    let told = vec![Err(error.clone()); waiting.len()];
    tell_all(waiting, told);
}

fn tell(waiting: Waiting, told: Told, others: Others) {
    let _ = waiting.answer.send(Answer {
        told,
        _others: others,
    });
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};

    use parking_lot::Mutex;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::Attempt;

    /// Who has been woken, by number, in order.
    type Woken = Arc<Mutex<Vec<usize>>>;

    struct Caller(usize, Woken);

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    /// So many callers that wait for their answers, the writer's end of them, and who has been woken.
    fn batch(callers: usize) -> (Vec<oneshot::Receiver<Answer>>, Vec<Waiting>, Woken) {
        let woken = Woken::default();
        let (mut answers, mut batch) = (Vec::new(), Vec::new());
        for number in 0..callers {
            let (answer, mut answered) = oneshot::channel();
            let waker = Waker::from(Arc::new(Caller(number, Arc::clone(&woken))));
            let polled = Pin::new(&mut answered).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            let attempt = Attempt {
                changes: Vec::new(),
                not_after: Instant::now(),
            };
            batch.push(Waiting { attempt, answer });
            answers.push(answered);
        }
        (answers, batch, woken)
    }

    /// A different answer for each of so many.
    fn numbered(callers: usize) -> Vec<Told> {
        (0..callers)
            .map(|number| Err(StoreError::unavailable(format!("answer {number}"))))
            .collect()
    }

    fn assert_told(answered: &mut oneshot::Receiver<Answer>, number: usize) {
        let told = answered.try_recv().expect("this caller has an answer").told;
        let error = told.expect_err("all of these are refusals").to_string();
        assert!(error.contains(&format!("answer {number}")), "{error}");
    }

    #[test]
    fn the_writer_wakes_one_caller_and_that_one_the_others() {
        let (mut answers, batch, woken) = batch(3);
        tell_all(batch, numbered(3));
        assert_eq!(*woken.lock(), [0]);
        assert_told(&mut answers[0], 0);
        assert_eq!(*woken.lock(), [0, 1, 2]);
        assert_told(&mut answers[1], 1);
        assert_told(&mut answers[2], 2);
    }

    #[test]
    fn the_others_are_told_though_the_first_has_left_before() {
        let (mut answers, batch, _) = batch(3);
        answers.remove(0);
        tell_all(batch, numbered(3));
        assert_told(&mut answers[0], 1);
        assert_told(&mut answers[1], 2);
    }

    #[test]
    fn the_others_are_told_though_the_first_leaves_without_looking() {
        let (mut answers, batch, _) = batch(3);
        tell_all(batch, numbered(3));
        answers.remove(0);
        assert_told(&mut answers[0], 1);
        assert_told(&mut answers[1], 2);
    }
}
