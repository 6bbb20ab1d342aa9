package alarm_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
)

// The table in docs/alarms.md has every subject of an item and no other one. Each condition that the document names
// below the table exists, and is no subject.
func TestSubjectsInDocs(t *testing.T) {
	t.Parallel()
	subjects := []string{
		alarm.WhatDead, alarm.WhatScheduleMissed, alarm.WhatDeadOver, alarm.WhatWaitingOver, alarm.WhatTest,
	}
	source, err := os.ReadFile("message.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m)^\tWhat\w+ += `).FindAll(source, -1)); n != len(subjects) {
		t.Errorf("message.go has %d subjects, this test has %d", n, len(subjects))
	}
	for _, d := range health.Definitions() {
		_, hasRule := alarm.Rules{}.Thresholds()[d.Name]
		if hasRule != (d.End != "") || hasRule && d.Threshold == 0 {
			t.Errorf("%s has a rule: %t, and ends with %q", d.Name, hasRule, d.End)
		}
		if hasRule {
			subjects = append(subjects, string(d.Name))
		}
	}
	doc, err := os.ReadFile("../../docs/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, contents, _ := strings.Cut(string(doc), "\n## Contents\n")
	contents, _, _ = strings.Cut(contents, "\n## ")
	name := regexp.MustCompile("`([a-z_]+)`")
	var documented []string
	for line := range strings.Lines(contents) {
		first, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !isRow || first == "`what`" {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(first, -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(documented)
	if want := slices.Sorted(slices.Values(subjects)); !slices.Equal(documented, want) {
		t.Errorf("the table has %q, want %q", documented, want)
	}
	_, others, _ := strings.Cut(contents, "\nOther conditions of `taskledger status`")
	others, _, hasOthers := strings.Cut(others, " are no")
	if !hasOthers {
		t.Fatal("no sentence about other conditions")
	}
	for _, m := range name.FindAllStringSubmatch(others, -1) {
		isCondition := slices.ContainsFunc(health.Definitions(), func(d health.Definition) bool {
			return string(d.Name) == m[1]
		})
		if !isCondition || slices.Contains(subjects, m[1]) {
			t.Errorf("%s is not a condition without an alarm", m[1])
		}
	}
}
