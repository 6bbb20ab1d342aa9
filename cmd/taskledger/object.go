package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// objectsKey is the annotation with a command's objects. The first argument names an object, in the singular or the
// plural: taskledger pause kind NAME.
const objectsKey = "objects"

// takesObjects adds the objects to a command.
func takesObjects(cmd *cobra.Command, objects ...string) {
	cmd.Annotations = map[string]string{objectsKey: strings.Join(objects, " ")}
}

// objectsOf returns the objects of a command, or nil.
func objectsOf(cmd *cobra.Command) []string { return strings.Fields(cmd.Annotations[objectsKey]) }

// findObject returns the object of a command that a word names.
func findObject(cmd *cobra.Command, word string) (string, error) {
	all := objectsOf(cmd)
	if i := slices.IndexFunc(all, func(object string) bool { return isObject(word, object) }); i >= 0 {
		return all[i], nil
	}
	f := usagef("%s: unknown object %q", cmd.CommandPath(), word)
	if similar := suggestOf(all, word); similar != "" {
		return "", f.hinted("did you mean %s? or run: %s --help", similar, cmd.CommandPath())
	}
	return "", f.hinted("one of: %s", strings.Join(all, ", "))
}

// isObject reports whether a word names an object, in the singular or the plural.
func isObject(word, object string) bool {
	return word == object || word == object+"s" || word+"s" == object
}

// objectArgs requires an object of the command, then the arguments that rest permits.
func objectArgs(rest func(cmd *cobra.Command, object string, args []string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs an object", cmd.CommandPath()).
				hinted("one of: %s", strings.Join(objectsOf(cmd), ", "))
		}
		object, err := findObject(cmd, args[0])
		if err != nil {
			return err
		}
		return rest(cmd, object, args[1:])
	}
}

// nameOf returns the path of a command, with its object if it has one: taskledger show tasks.
func nameOf(cmd *cobra.Command, args []string) string {
	if len(objectsOf(cmd)) > 0 && len(args) > 0 {
		if object, err := findObject(cmd, args[0]); err == nil {
			return cmd.CommandPath() + " " + object
		}
	}
	return cmd.CommandPath()
}
