// Says of an object what tools of others say of it: Flux and helm (kstatus), and Argo CD (a script in Lua).
//
// What for: our conditions are judged by code that was not written here. What it must not know: what is
// right; for each line of standard input, an object in JSON, it prints one line with both answers.
// Read next: tests/loghub_operator/support/health.py.
//
// Usage: health ARGO-SCRIPT
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const longestLine = 16 << 20

type answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: health ARGO-SCRIPT")
		os.Exit(2)
	}
	script, err := os.ReadFile(os.Args[1])
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		object := &unstructured.Unstructured{}
		check(object.UnmarshalJSON(lines.Bytes()))
		line, err := json.Marshal(map[string]answer{
			"kstatus": kstatus(object), "argo": argo(object, string(script)),
		})
		check(err)
		fmt.Println(string(line))
	}
	check(lines.Err())
}

func kstatus(object *unstructured.Unstructured) answer {
	result, err := status.Compute(object)
	check(err)
	return answer{Status: string(result.Status), Message: result.Message}
}

// As Argo CD does for a script of its configuration: with the libraries base, table and package only, a
// second at most, and numbers as the apiserver's client decodes them.
func argo(object *unstructured.Unstructured, script string) answer {
	machine := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer machine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	machine.SetContext(ctx)
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		machine.Push(machine.NewFunction(open))
		machine.Push(lua.LString(name))
		machine.Call(1, 0)
	}
	machine.SetGlobal("obj", value(machine, object.Object))
	check(machine.DoString(script))
	result, ok := machine.Get(-1).(*lua.LTable)
	if !ok {
		check(fmt.Errorf("the script returns %s, not a table", machine.Get(-1).Type()))
	}
	return answer{Status: text(result, "status"), Message: text(result, "message")}
}

func text(table *lua.LTable, key string) string {
	return lua.LVAsString(table.RawGetString(key))
}

func value(machine *lua.LState, from any) lua.LValue {
	switch typed := from.(type) {
	case bool:
		return lua.LBool(typed)
	case string:
		return lua.LString(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	case []any:
		table := machine.NewTable()
		for _, item := range typed {
			table.Append(value(machine, item))
		}
		return table
	case map[string]any:
		table := machine.NewTable()
		for key, item := range typed {
			table.RawSetString(key, value(machine, item))
		}
		return table
	}
	return lua.LNil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
