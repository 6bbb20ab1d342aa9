// Package workertest runs handlers in tests, as they are in production: a real worker pool on a real
// broker, which runs in the test's process, and a real transaction of a database of the test's
// own (package ledgertest).
//
//	func TestCoupon(t *testing.T) {
//		db := ledgertest.Pool(t)
//		kit := workertest.Start(t, db, register) // the function that your main calls
//		…
//		task := kit.Work(key)  // one attempt at one task
//		kit.Drain()            // everything that can be done, and what comes of it
//		sent := ledgertest.Enqueued(t, db, mailSend)  // what was enqueued, by biz_id
//	}
//
// There is no relay and no scheduler: a task is delivered when the test says so, and what is due
// later stays where it is, so that the test can look at it: a retry, for instance, which
// operator.Operator.Release brings forward, for another [Kit.Work]. [Kit.CrashAt] ends the worker at
// the places where a crash is interesting.
package workertest
