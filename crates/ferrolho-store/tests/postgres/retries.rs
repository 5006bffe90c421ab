//! Failures that only mean "again": whoever fell victim to others is tried again inside. (Cases: PG 98.)

use crate::kit::{acquire, find, must, must_remove, open, release, renew, server};

/// Of three commits two fail, one as a serialization failure, one as the victim of a deadlock. A sequence counts
/// them, since nothing takes its numbers back.
const FAIL: &str = "
    CREATE SEQUENCE tries;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        CASE nextval('public.tries') % 3
            WHEN 1 THEN RAISE serialization_failure;
            WHEN 2 THEN RAISE deadlock_detected;
            ELSE RETURN NULL;
        END CASE;
    END $$;
    CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON ferrolho_commit";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victims_of_others_are_tried_again_inside() {
    // In the middle of the call, and as it commits.
    for when in ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"] {
        let Some(server) = server() else { return };
        let store = open(&server.url("locks")).await;
        server.sql(
            "locks",
            &format!("{FAIL} {when} FOR EACH ROW EXECUTE FUNCTION fail()"),
        );
        for round in 0..5 {
            let name = format!("r{round}");
            let live = must(&store, acquire(&name, "a", 600)).await;
            let renewed = must(&store, renew(&live, 900)).await;
            assert_eq!(find(&store, &name).await.unwrap().lock, renewed.lock);
            must_remove(&store, release(&renewed)).await;
            assert!(find(&store, &name).await.is_none());
        }
        let tries = server.sql("locks", "SELECT last_value FROM tries");
        assert_eq!(tries, "45", "fifteen commits at the third try each");
    }
}
