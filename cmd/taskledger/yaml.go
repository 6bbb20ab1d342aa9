package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlToJSON converts one YAML document to JSON exactly as written: members in their order, numbers with all their
// digits, dates as strings. It refuses a scalar that YAML reads as a value of another notation, such as 010. Without a
// document it returns null.
func yamlToJSON(text []byte) ([]byte, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("neither JSON nor YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document: put each into a file of its own")
	}
	w := yamlWriter{open: make(map[*yaml.Node]bool), members: make(map[*yaml.Node][]yamlMember)}
	if len(document.Content) == 0 {
		return []byte("null"), nil
	}
	if err := w.write(document.Content[0]); err != nil {
		return nil, err
	}
	return w.json.Bytes(), nil
}

// yamlWriter writes nodes of YAML as JSON.
type yamlWriter struct {
	json bytes.Buffer
	open map[*yaml.Node]bool // the nodes that contain the current one
	// members holds the members of each mapping, nil while the mapping is read. Each mapping is read once, because
	// mappings that merge each other could otherwise take exponential time.
	members map[*yaml.Node][]yamlMember
}

// refuse returns an error that names the line of a node.
func refuse(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...)
}

// write writes a node.
func (w *yamlWriter) write(n *yaml.Node) error {
	switch {
	case w.open[n]:
		return refuse(n, "the anchor %s contains itself", n.Anchor)
	case w.json.Len() > maxRead: // aliases of aliases
		return refuse(n, "more than %d bytes of JSON", maxRead)
	}
	w.open[n] = true
	defer delete(w.open, n)
	switch n.Kind {
	case yaml.AliasNode:
		return w.write(n.Alias)
	case yaml.MappingNode:
		return w.writeObject(n)
	case yaml.SequenceNode:
		return w.writeArray(n)
	default:
		return w.writeScalar(n)
	}
}

func (w *yamlWriter) writeArray(n *yaml.Node) error {
	if n.Tag != "!!seq" {
		return refuse(n, "unknown tag %s", n.Tag)
	}
	w.json.WriteByte('[')
	for i, element := range n.Content {
		if i > 0 {
			w.json.WriteByte(',')
		}
		if err := w.write(element); err != nil {
			return err
		}
	}
	w.json.WriteByte(']')
	return nil
}

func (w *yamlWriter) writeObject(n *yaml.Node) error {
	members, err := w.membersOf(n)
	if err != nil {
		return err
	}
	w.json.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			w.json.WriteByte(',')
		}
		if err := w.writeString(m.name); err != nil {
			return err
		}
		w.json.WriteByte(':')
		if err := w.write(m.value); err != nil {
			return err
		}
	}
	w.json.WriteByte('}')
	return nil
}

// yamlMember is a member of a mapping.
type yamlMember struct {
	name  string
	value *yaml.Node
}

// membersOf returns the members of a mapping in their order, then the members that << merges into it.
func (w *yamlWriter) membersOf(n *yaml.Node) ([]yamlMember, error) {
	if n.Tag != "!!map" {
		return nil, refuse(n, "must be a mapping without a tag")
	}
	if members, ok := w.members[n]; ok {
		if members == nil {
			return nil, refuse(n, "the anchor %s merges itself", n.Anchor)
		}
		return members, nil
	}
	w.members[n] = nil
	members := []yamlMember{} // not nil
	var merged []*yaml.Node
	has := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, mergedNodes(value)...)
			continue
		case key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0:
			return nil, refuse(key, "the name of a member must be a text")
		case has[key.Value]:
			return nil, refuse(key, "the member %q must be given once", key.Value)
		}
		has[key.Value] = true
		members = append(members, yamlMember{key.Value, value})
	}
	for _, from := range merged {
		more, err := w.membersOf(from)
		if err != nil {
			return nil, err
		}
		for _, m := range more {
			if !has[m.name] {
				has[m.name] = true
				members = append(members, m)
			}
		}
	}
	w.members[n] = members
	return members, nil
}

// mergedNodes returns the mappings that a value of << names.
func mergedNodes(value *yaml.Node) []*yaml.Node {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind != yaml.SequenceNode {
		return []*yaml.Node{value}
	}
	var all []*yaml.Node
	for _, n := range value.Content {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		all = append(all, n)
	}
	return all
}

func (w *yamlWriter) writeScalar(n *yaml.Node) error {
	isPlain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	tag := n.ShortTag()
	switch {
	case n.Style&yaml.TaggedStyle != 0 && tag != "!!str":
		return refuse(n, "unknown tag %s", tag)
	case n.Style&yaml.TaggedStyle != 0, !isPlain:
		return w.writeString(n.Value)
	case tag == "!!null":
		w.json.WriteString("null")
	case tag == "!!bool":
		w.json.WriteString(strings.ToLower(n.Value))
	case json.Valid([]byte(n.Value)): // a number
		w.json.WriteString(n.Value)
	case tag == "!!int", tag == "!!float":
		return refuse(n, "%s is a number, but not one of JSON: write it as in JSON, or put it into quotes", n.Value)
	default:
		return w.writeString(n.Value)
	}
	return nil
}

func (w *yamlWriter) writeString(s string) error {
	e := json.NewEncoder(&w.json)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	w.json.Truncate(w.json.Len() - 1) // the line end
	return nil
}
