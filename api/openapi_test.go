package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/api"
)

// The document has every call that the handler serves with the role that it needs, and no other. The tests of this
// package check each answer against it.
func TestDocument(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	documented := map[string]api.Role{}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			pattern := method + " " + path
			if i := strings.LastIndexByte(path, '}'); i >= 0 && strings.HasPrefix(path[i+1:], ":") {
				pattern = method + " " + path[:strings.LastIndexByte(path, '{')] + "{change}"
			}
			role, _ := operation.Extensions["x-role"].(string)
			if other, ok := documented[pattern]; ok && other != api.Role(role) {
				t.Errorf("%s has the roles %s and %s", pattern, role, other)
			}
			documented[pattern] = api.Role(role)
		}
	}
	if served := api.Operations(); !maps.Equal(served, documented) {
		t.Errorf("served %v, documented %v", served, documented)
	}
	codes := d.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	names := slices.Sorted(maps.Keys(api.Problems()))
	var listed []string
	for _, c := range codes {
		listed = append(listed, c.(string))
	}
	slices.Sort(listed)
	if !slices.Equal(names, listed) {
		t.Errorf("problems %v, documented %v", names, listed)
	}
}
