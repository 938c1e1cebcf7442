# Completion of the command tutti in fish; `tutti completion fish` prints this. It knows no option:
# the command itself names what can stand at the cursor (tools/completion/candidates.h).

function __tutti_candidates
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l answer ($before[1] candidates $before[2..] "$current" 2>/dev/null)
    set -l value (string replace -r -- '^--[^=]*=' '' "$current")
    set -l prefix (string replace -r -- '^(--[^=]*=)?.*' '$1' "$current")
    printf '%s\n' $answer[2..]
    switch "$answer[1]"
        case files
            __fish_complete_path "$value" | string replace -r -- '^' "$prefix"
        case folders
            __fish_complete_directories "$value" '' | string replace -r -- '^' "$prefix"
        case command # Behind "--" is the line of another program.
            set -l start (contains -i -- -- $before)
            if test -n "$start"
                set -l rest (string escape -- $before[(math $start + 1)..])
                complete -C "$(string join ' ' -- $rest "$current")"
            else
                __fish_complete_command
            end
    end
end

complete -c tutti -f -k -a '(__tutti_candidates)'
