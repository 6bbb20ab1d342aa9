// Package workertest runs handlers in tests as in production: a real worker pool and dispatcher on a real NATS server,
// in the test's process, and a real transaction in the test's own database (package ledgertest).
//
//	func TestCoupon(t *testing.T) {
//		db := ledgertest.Pool(t)
//		kit := workertest.Start(t, db, kinds()) // the kinds that your main works on
//		…
//		task := kit.Work(key)  // one attempt at one task
//		kit.Drain()            // all available tasks, and the tasks that they enqueue
//		sent := ledgertest.Enqueued(t, db, mailSend)  // enqueued tasks, by biz_id
//	}
//
// There is no relay and no scheduler, and a dispatcher only while the test calls Work or Drain: until then tasks wait.
// A task that is due later stays as it is, so that the test can examine it. ledger.Release brings a retry
// forward, for another [Kit.Work]. [Kit.CrashAt] crashes the worker at a critical point.
package workertest
