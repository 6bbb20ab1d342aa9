//go:build stress

package conformance_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// The suite's stress form: all of it STRESS_TEST_COUNT (10) times at once: make conformance-stress.

func TestWatermillTasksStress(t *testing.T) {
	b := newBundle(t)
	tests.TestPubSubStressTest(t, b.taskFeatures(), b.tasks, nil)
}

func TestWatermillEventsStress(t *testing.T) {
	b := newBundle(t)
	tests.TestPubSubStressTest(t, b.eventFeatures(), b.eventsOfOneGroup, b.events)
}
