//! What writers do to the place they write to.

use std::fs;

use peregrine_formats::write_whole;

fn leftovers(folder: &std::path::Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write_whole(&path, b"first").unwrap();
    write_whole(&path, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(leftovers(folder.path()), 1);
}

#[test]
fn what_a_killed_process_left_behind_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    for count in 0..64 {
        let name = format!(".peregrine-{}-{count}.tmp", std::process::id());
        fs::write(folder.path().join(name), b"").unwrap();
    }
    let path = folder.path().join("file");
    write_whole(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn errors_name_the_file_and_say_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/file");
    let error = write_whole(&path, b"").unwrap_err().to_string();
    assert_eq!(error, format!("{}: cannot be written: No such file or directory", path.display()));
    let error = write_whole(folder.path(), b"").unwrap_err().to_string();
    assert_eq!(error, format!("{}: cannot be written: is a directory", folder.path().display()));
    assert_eq!(leftovers(folder.path()), 0);
}

#[cfg(unix)]
mod unix {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use peregrine_formats::write_whole;

    #[test]
    fn a_link_stays_and_what_it_points_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        let file = folder.path().join("below/file");
        let (link, second) = (folder.path().join("link"), folder.path().join("below/second"));
        symlink("below/second", &link).unwrap();
        symlink("file", &second).unwrap();
        // At first the links lead to nothing.
        for content in [b"first", b"other"] {
            write_whole(&link, content).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("below/second"));
            assert!(fs::symlink_metadata(&second).unwrap().is_symlink());
            assert_eq!(fs::read(&file).unwrap(), content);
        }
        let circle = folder.path().join("circle");
        symlink("circle", &circle).unwrap();
        let error = write_whole(&circle, b"").unwrap_err().to_string();
        assert!(error.ends_with("circle: cannot be written: too many symbolic links"), "{error}");
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for mode in [0o600, 0o664, 0o751] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            write_whole(&path, b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_pipe_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_whole(&pipe, b"through").unwrap();
        // Asked first: without a pipe, nothing ends the reader.
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), b"through");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_told_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("full");
        symlink("/dev/full", &link).unwrap();
        let error = write_whole(&link, b"much").unwrap_err().to_string();
        let expected = format!("{}: cannot be written: No space left on device", link.display());
        assert_eq!(error, expected);
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
    }
}
